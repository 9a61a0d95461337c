#!/usr/bin/env python3
"""python_basics_test.py - the package loads, ranks join, errors carry their record."""
# timeout: 60
import collections
import concurrent.futures
import queue

import python_tests
from python_tests import check, raises

python_tests.need_choir()

import numpy as np  # noqa: E402 # pylint: disable=wrong-import-position

import choir  # noqa: E402 # pylint: disable=wrong-import-position


def sums(group):
    a = np.arange(5, dtype="f4") + group.rank
    check(group.all_reduce(a) is a, True, "the result is the argument")
    want = np.arange(5) * group.size + sum(range(group.size))
    check(a.tolist(), want.tolist())


def errors():
    with choir.init() as group:
        check((group.rank, group.size), (0, 1))
        e = raises(choir.ElementTypeError, group.all_reduce, np.ones(2, "?"), "avg", has="bool")
        check((e.name, e.code, e.rank, e.loses), ("CHOIR_ERR_TYPE", -2, None, "call"))
        check(isinstance(e, choir.Error) and isinstance(e, TypeError), True)
        raises(TypeError, group.all_reduce)
        raises(TypeError, group.all_reduce, np.ones(1), nonsense=1)
        raises(ValueError, group.all_reduce, np.ones(1), "sun", has="sun")
        e = raises(choir.InvalidError, group.broadcast, np.ones(1), 4)
        check(e.operation, "broadcast", "the operation of a refused argument")
    raises(choir.StateError, group.all_reduce, np.ones(1), has="closed")


def arguments():
    """What refuses one names it."""
    a = np.ones(1)
    with choir.init() as group:
        for kind, name, call in (
                (TypeError, "timeout: ", lambda: group.barrier(timeout="1")),
                (TypeError, "timeout: ", lambda: group.wait_pending("1")),
                (ValueError, "timeout: ", lambda: group.barrier(timeout=-1)),
                (TypeError, "root: ", lambda: group.broadcast(a, root=1.0)),
                (OverflowError, "root: ", lambda: group.broadcast(a, root=1 << 31)),
                (OverflowError, "root: ", lambda: group.broadcast(a, root=1 << 70)),
                (TypeError, "tag: ", lambda: group.send(a, 0, "x")),
                (TypeError, "factor: ", lambda: group.all_reduce(a, "premul-sum", factor="2")),
                (TypeError, "ranks: ", lambda: group.split(["a"])),
                (ValueError, "input_splits: ", lambda: group.all_to_all(a, a, [1], [-1])),
                (TypeError, "output_splits: ", lambda: group.all_to_all(a, a, [1.0], [1])),
                (TypeError, "factors: ", lambda: choir.reduce_local(a, [a], "premul-sum", factors=["x"])),
                (TypeError, "tensors: ", lambda: group.all_reduce_coalesced(a)),
                (TypeError, "tensors: ", lambda: group.all_reduce_coalesced("text"))):
            check(str(raises(kind, call))[:len(name)], name, "the beginning of what is said")


def sequences():
    """A list of buffers may be any sequence."""
    with choir.init() as group:
        a, b = np.ones(2), np.zeros(2)
        group.all_gather(collections.deque([b]), a)
        check(b.tolist(), [1, 1])
        group.all_reduce_coalesced(collections.deque([a, b]), "avg")
        group.all_gather_coalesced(collections.deque([collections.deque([b])]), (a,))


def joined(rank, carry):
    with choir.init(rank=rank, size=2, carry=carry, timeout=20 * python_tests.SLOWNESS) as group:
        a = np.full(3, rank + 1.0)
        group.all_reduce(a)
        return a.tolist()


def carried():
    """Ranks that are threads, and a queue between them."""
    words = queue.Queue()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        got = list(pool.map(joined, range(2), [words.put, lambda _: words.get(timeout=20 * python_tests.SLOWNESS)]))
    check(got, [[3.0] * 3] * 2, "sums")


def not_carried():
    """What the caller raises comes out; what it returns is looked at."""
    def fails(word):
        raise KeyError("carry")

    for rank in range(2):
        raises(KeyError, joined, rank, fails, has="carry")
    raises(TypeError, joined, 1, lambda word: None, has="what carry() returns")
    raises(ValueError, joined, 1, lambda word: "x" * 10_000, has="more than a word")
    raises(TypeError, joined, 1, "a word", has="not callable")
    raises(choir.InvalidError, choir.init, carry=print, has="carry()")


if __name__ == "__main__":
    python_tests.main({sums: (1, 2, 4), errors: 0, arguments: 0, sequences: 0, carried: 0, not_carried: 0})
