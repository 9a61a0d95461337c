#!/usr/bin/env python3
"""python_leaks_test.py - 100,000 calls of every kind leave no reference, object, descriptor or memory behind."""
# timeout: 180
import gc
import os
import resource
import sys
import time

import python_tests
from python_tests import check

python_tests.need_choir()

import numpy as np  # noqa: E402 # pylint: disable=wrong-import-position

import choir  # noqa: E402 # pylint: disable=wrong-import-position

CALLS = 100_000


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def fails(call, *args, **more):
    try:
        call(*args, **more)
    except (choir.Error, BufferError, TypeError, ValueError):
        return
    raise AssertionError("it did not fail")


def kinds(group, a, locked, store):
    """(share of the calls, one of them)"""
    lists, places = [a[:1]] * group.size, np.array([3, 1])
    yield 1.0, lambda: group.all_reduce(a)
    yield 0.2, lambda: group.all_reduce(a, "max", timeout=5, dtype="f64")
    yield 0.2, lambda: group.all_reduce(a, input=locked)
    yield 0.2, lambda: group.all_reduce(a, async_op=True).wait()
    yield 0.1, lambda: group.all_reduce(a, async_op=True)
    yield 0.1, lambda: group.all_gather(lists, a[:1])
    yield 0.05, lambda: group.all_reduce_sparse(places, a, (4,)).values
    yield 0.05, lambda: group.all_reduce_sparse(places, a, (4,), async_op=True)
    yield 0.05, lambda: fails(group.all_reduce_sparse, places, a, (3,))
    yield 0.1, lambda: fails(group.all_reduce, locked)
    yield 0.1, lambda: fails(group.all_reduce, a, "nonsense")
    yield 0.1, lambda: fails(group.broadcast, a, 99)
    yield 0.05, lambda: group.barrier(async_op=True).add_done_callback(id)
    yield 0.05, lambda: fails(group.all_gather, [a, locked], 3)
    yield 0.05, lambda: (store.set("k", b"v"), store.get("k"), store.multi_get(["k", "k"]))
    yield 0.002, lambda: group.split([0]).close()
    yield 0.05, lambda: group.all_gather_object([1])


def batch(group, a):
    with group.batch():
        group.all_reduce(a)


def count(group, a, locked):
    group.wait_pending(20)
    group.barrier()  # what was kept for works that are done goes back
    gc.collect()
    return {"descriptors": descriptors(), "objects": len(gc.get_objects()), "a": sys.getrefcount(a),
            "locked": sys.getrefcount(locked), "group": sys.getrefcount(group)}


def run_all(calls, watched):
    for share, call in calls:
        for _ in range(int(CALLS * share * watched)):
            call()


def leaks():
    group, store = choir.init(), choir.open_store("hash://")
    a, locked = np.zeros(2), np.zeros(2)
    locked.flags.writeable = False
    calls = [*kinds(group, a, locked, store), (0.1, lambda: batch(group, a))]
    run_all(calls, 0.02)  # what is made once
    none = sys.getrefcount(None)
    before, rss = count(group, a, locked), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run_all(calls, 1)
    after, more = count(group, a, locked), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - rss
    print(f"before {before}, after {after}, {more} KiB more")
    grown = {k: after[k] - before[k] for k in before if abs(after[k] - before[k]) > (50 if k == "objects" else 0)}
    check(grown, {}, "what has grown")
    check(abs(sys.getrefcount(None) - none) < 200, True, "references to None")
    check(more < 4096, True, f"{more} KiB more")
    group.close()


class Holder(np.ndarray):
    """An array with attributes, which are counted."""

    nalive = 0

    def __del__(self):
        Holder.nalive -= 1


def cycles():
    """An array that has the handle of the work it is lent to."""
    group = choir.init()
    for _ in range(100):
        a = np.ones(2).view(Holder)
        Holder.nalive += 1
        a.work = group.all_reduce(a, async_op=True)
        b = np.ones(2).view(Holder)
        Holder.nalive += 1
        with group.batch(async_op=True) as b.batch:
            group.all_gather([b], a)
    del a, b
    group.wait_pending(20)
    gc.collect()
    check(Holder.nalive, 0, "arrays that are left")
    group.close()


def cycle_of_a_group():
    """An array that has the group whose work, without a handle, it was lent to."""
    a = np.ones(2).view(Holder)
    Holder.nalive += 1
    a.group = choir.init()
    a.group.recv(a, 0, async_op=True)
    gc.collect()
    check(Holder.nalive, 1, "arrays that are lent")
    a.group.send(np.ones(2), 0)
    until = time.monotonic() + 60
    del a
    while Holder.nalive > 0 and time.monotonic() < until:  # a call would give it back
        gc.collect()
    check(Holder.nalive, 0, "arrays that are left")


if __name__ == "__main__":
    python_tests.main({leaks: 0, cycles: 0, cycle_of_a_group: 0})
