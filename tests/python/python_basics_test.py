#!/usr/bin/env python3
"""python_basics_test.py - the package loads, ranks join, errors carry their record."""
# timeout: 60
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
    raises(choir.StateError, group.all_reduce, np.ones(1), has="closed")


if __name__ == "__main__":
    python_tests.main({sums: (1, 2, 4), errors: 0})
