#!/usr/bin/env python3
"""python_objects_test.py - objects between ranks: JSON-like ones always, pickled ones only if both sides ask; local calls."""
# timeout: 60
import collections
import enum
import json
import sys

import python_tests
from python_tests import check, raises

python_tests.need_choir()

import numpy as np  # noqa: E402 # pylint: disable=wrong-import-position

import choir  # noqa: E402 # pylint: disable=wrong-import-position

VALUES = [None, True, 3, -2.5, "text", "schön", [1, [2]], {"a": {"b": []}}, "", list(range(1000)), 10**30]


class Number(enum.IntEnum):
    """Would arrive as an int."""
    ONE = 1


class Text(str):
    """Would arrive as a str."""


# What JSON writes, and reads as something else.
CHANGED = [{1: "a"}, {"a": {None: 1}}, (1, 2), [[(1,)]], {"a": ()}, Number.ONE, [Number.ONE], Text("a"), {Text("a"): 1},
           {"a": [Text("b")]}, collections.OrderedDict(a=1), [collections.Counter("a")], np.float64(2.5), {"a": np.float64(1)}]


def every_kind(group):
    n, r = group.size, group.rank
    for value in VALUES:
        check(group.all_gather_object([r, value]), [[i, value] for i in range(n)])
        check(group.broadcast_object(value if r == n - 1 else None, n - 1), value)
    check(group.gather_object({"rank": r}), [{"rank": i} for i in range(n)] if r == 0 else None)
    check(group.scatter_object([i * "x" for i in range(n)] if r == 0 else None), r * "x")
    if r == 0 and n > 1:
        group.send_object(["to", 1], 1, tag=3)
    elif r == 1:
        check(group.recv_object(0, tag=3), ["to", 1])
    raises(TypeError, group.all_gather_object, {1, 2}, has="pickle=True")
    for changed in CHANGED:
        raises(TypeError, group.all_gather_object, changed, has="pickle=True")
        for got in group.all_gather_object(changed, pickle=True):
            check((got, type(got)), (changed, type(changed)))
    deep = []
    for _ in range(sys.getrecursionlimit() // 2):
        deep = [deep]
    check(group.broadcast_object(deep), deep)
    for _ in range(200000):
        deep = [deep]
    raises(ValueError, group.all_gather_object, deep, has="deeper than JSON")
    check(group.all_gather_object({1, r}, pickle=True), [{1, i} for i in range(n)])
    if r == 0:
        raises(ValueError, group.scatter_object, [], has="one for each")


def not_in_a_batch(group):
    """Refused before anything of it is part of the batch."""
    calls = [(group.all_gather_object, 1), (group.gather_object, 1), (group.broadcast_object, 1),
             (group.scatter_object, [1] * group.size), (group.send_object, 1, 0), (group.recv_object, 0)]
    with group.batch():
        for call, *args in calls:
            raises(NotImplementedError, call, *args, has="in a batch")
        group.all_reduce(a := np.ones(1))
    check(a.tolist(), [group.size])
    check(group.all_gather_object(1), [1] * group.size)


def not_unasked(group):
    """A receiver that did not ask for it does not unpickle."""
    if group.rank == 0:
        check(group.broadcast_object({1}, pickle=True), {1})
    else:
        raises(ValueError, group.broadcast_object, has="pickle=True was not given")


def local():
    out = np.zeros(3, "f4")
    check(choir.reduce_local(out, [np.ones(3, "f4"), np.full(3, 4, "f4")]) is out, True)
    check(out.tolist(), [5, 5, 5])
    check(choir.reduce_local(out, [np.ones(3, "f4")] * 2, "avg", divisor=4).tolist(), [0.5] * 3)
    check(choir.reduce_local(out, [np.ones(3, "f4")] * 2, "premul-sum", factors=[2, 3]).tolist(), [5] * 3)
    raises(ValueError, choir.reduce_local, out, [np.ones(4, "f4")], has="number 0")
    raises(choir.InvalidError, choir.reduce_local, out, [])
    raises(choir.ElementTypeError, choir.reduce_local, np.zeros(1, "?"), [np.zeros(1, "?")], "avg")
    choir.trace_reset()
    with choir.init() as group:
        group.all_reduce(out)
        check("all_reduce" in choir.trace_dump().decode(), True, choir.trace_dump())
    json.loads(choir.trace_dump())
    check(choir.trace_dump("pickle")[:1], b"\x80")
    raises(ValueError, choir.trace_dump, "xml")
    check("CHOIR_LOG" in [p["name"] for p in choir.params()], True)


if __name__ == "__main__":
    python_tests.main({every_kind: (1, 3), not_in_a_batch: 2, not_unasked: 2, local: 0})
