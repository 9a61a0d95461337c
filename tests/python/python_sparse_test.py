#!/usr/bin/env python3
"""python_sparse_test.py - sums of sparse arrays against dense ones; ranks without entries; what is refused."""
# timeout: 60
import python_tests
from python_tests import check, raises

python_tests.need_choir()

import numpy as np  # noqa: E402 # pylint: disable=wrong-import-position

import choir  # noqa: E402 # pylint: disable=wrong-import-position

# shape, shape of an entry's values, type, entries of rank r
ROWS = (
    ((7,), (), "f8", lambda r: 4),
    ((7,), (3,), "f4", lambda r: 4),
    ((5, 4), (), "i8", lambda r: 3 * r),  # none on rank 0
    ((5, 4), (2, 3), "i4", lambda r: 5 - r),
    ((3, 2, 2, 2), (), "u1", lambda r: 30),  # several at one place
    ((3, 1, 4), (2,), "c16", lambda r: 2),
    ((6,), (), "f2", lambda r: 6 * (r == 0)),
    ((6,), (4,), "f8", lambda r: 0),  # none at all
    ((0, 3), (), "f8", lambda r: 0),  # no place for any
    ((2**40, 2**40), (), "i8", lambda r: 50),
)


def entries(row, rank):
    """Small whole numbers: sums of them are the same in any order."""
    shape, value_shape, letters, count = row
    random = np.random.default_rng([rank, *shape])
    n = count(rank)
    indices = np.array([random.integers(0, size, n) if n else np.zeros(0) for size in shape], "i8").reshape(len(shape), n)
    return indices, random.integers(0, 4, (n, *value_shape)).astype(letters)


def reference(row, nranks):
    """{place: sum}, naively."""
    sums = {}
    for rank in range(nranks):
        indices, values = entries(row, rank)
        for place, value in zip(map(tuple, indices.T.tolist()), values):
            sums[place] = sums[place] + value if place in sums else value
    return sums


def check_sum(total, row, nranks):
    shape, value_shape, letters, _ = row
    indices, values = np.asarray(total.indices), np.asarray(total.values)
    want = sorted(reference(row, nranks).items())
    check(total.shape, shape)
    check((indices.dtype, indices.shape), (np.dtype("i8"), (len(shape), len(want))), f"indices of {row}")
    check((values.dtype, values.shape), (np.dtype(letters), (len(want), *value_shape)), f"values of {row}")
    check([tuple(p) for p in indices.T.tolist()], [p for p, _ in want], f"places of {row}")
    check(values.tolist(), [v.tolist() for _, v in want], f"sums of {row}")


def sums(group):
    for row in ROWS:
        given = (*entries(row, group.rank), row[0], row[1])
        check_sum(group.all_reduce_sparse(*given), row, group.size)
        check_sum(group.all_reduce_sparse(*given, async_op=True).wait(20), row, group.size)
    works = [group.all_reduce_sparse(*entries(row, group.rank), row[0], value_shape=row[1], async_op=True) for row in ROWS]
    for work, row in zip(works, ROWS):
        check(work.operation, "allreduce_sparse")
        check_sum(work.wait(20), row, group.size)


def by_name(group):
    """bf16 comes and goes as its bits."""
    ones = np.full(3, 0x3f80, "u2")
    total = group.all_reduce_sparse(np.array([4, 1, 4]), ones, [9], dtype="bf16", timeout=20)
    n = group.size
    check(np.asarray(total.indices).tolist(), [[1, 4]])
    check((np.asarray(total.values).astype("u4") << 16).view("f4").tolist(), [n, 2 * n])


def life(group):
    """Arrays outlast the sum and the group; dropped works end all the same."""
    row = ROWS[1]
    values = np.asarray(group.all_reduce_sparse(*entries(row, group.rank), *row[:2]).values)
    kept = values.copy()
    for _ in range(20):
        group.all_reduce_sparse(*entries(row, group.rank), *row[:2], async_op=True)
    group.wait_pending(20)
    values += 1
    check(values.tolist(), (kept + 1).tolist())
    total = group.all_reduce_sparse(*entries(row, group.rank), *row[:2])
    check(bytes(memoryview(total.values)), kept.tobytes())
    with memoryview(total.indices) as view:
        check((view.format, view.shape, view.c_contiguous, view.readonly), ("q", (1, len(kept)), True, False))


AT, ONES = np.array([[0, 1, 2], [0, 1, 0]]), np.ones(3)

BAD = {  # arguments: the exception, what it says
    "a negative index": ((AT - 1, ONES, (3, 2)), choir.InvalidError, "entry 0 has -1 in dimension 0"),
    "an index behind the end": ((AT, ONES, (3, 1)), choir.InvalidError, "entry 1 has 1 in dimension 1, expected 0 to 0"),
    "an entry where there is no place": ((AT, ONES, (3, 0)), choir.InvalidError, "dimension 1"),
    "indices of i32": ((AT.astype("i4"), ONES, (3, 2)), TypeError, "indices: elements of i32, expected i64"),
    "indices of floats": ((AT.astype("f8"), ONES, (3, 2)), TypeError, "indices: elements of f64, expected i64"),
    "indices that are no buffer": (([[0], [1]], ONES[:1], (3, 2)), TypeError, ""),
    "values that are no buffer": ((AT, 1.0, (3, 2)), TypeError, ""),
    "values of no type": ((AT, np.zeros(3, "S3"), (3, 2)), TypeError, "dtype"),
    "indices with steps": ((AT.T.copy().T, ONES, (3, 2)), ValueError, "indices: is not contiguous"),
    "values with steps": ((AT, np.ones(6)[::2], (3, 2)), ValueError, "values: is not contiguous"),
    "too few values": ((AT, ONES[:2], (3, 2)), ValueError, "indices has 6 elements and values 2"),
    "values without entries": ((AT[:, :0], ONES, (3, 2)), ValueError, "indices has 0 elements and values 3"),
    "half an entry": ((AT.ravel()[:5], ONES, (3, 2)), ValueError, "indices has 5 elements"),
    "too few values for their shape": ((AT, ONES, (3, 2), (2,)), ValueError, "values 3"),
    "no dimensions": ((AT[:0], ONES[:0], ()), choir.InvalidError, "ndim: 0"),
    "too many dimensions": ((AT, ONES, (1,) * 9), ValueError, "shape: has 9 dimensions, expected at most 8"),
    "too many dimensions of values": ((AT, ONES, (3, 2), (1,) * 9), ValueError, "value_shape: has 9"),
    "a size below 0": ((AT[:, :0], ONES[:0], (3, -2)), choir.InvalidError, "-2 in dimension 1"),
    "a size of values below 0": ((AT, ONES, (3, 2), (-1,)), ValueError, "value_shape: -1"),
    "values of nothing": ((AT, ONES[:0], (3, 2), (0,)), choir.InvalidError, "at least one element"),
    "more values than there is memory": ((AT, ONES, (3, 2), (2**62, 4)), ValueError, "value_shape"),
    "a shape that is a number": ((AT, ONES, 6), TypeError, ""),
    "a shape of texts": ((AT, ONES, "32"), TypeError, ""),
    "a size beyond 64 bits": ((AT, ONES, (3, 2**64)), OverflowError, ""),
    "no shape": ((AT, ONES), TypeError, "shape"),
}


def refused(group):
    """Nothing is begun: the group goes on as before, and the next sum is right."""
    sequence = group.collective_sequence
    for what, (given, kind, says) in BAD.items():
        for more in ({}, {"async_op": True}):
            try:
                raises(kind, group.all_reduce_sparse, *given, has=says, **more)
            except AssertionError as e:
                raise AssertionError(f"{what}: {e}") from None
    with group.batch():
        raises(choir.UnsupportedError, group.all_reduce_sparse, AT, ONES, (3, 2), has="batch")
    raises(TypeError, group.all_reduce_sparse, AT, ONES, (3, 2), op="max")
    raises(TypeError, choir.Sparse)
    check((group.collective_sequence, group.error), (sequence, None))
    check_sum(group.all_reduce_sparse(*entries(ROWS[0], group.rank), ROWS[0][0]), ROWS[0], group.size)


def different(group):
    """Ranks that do not agree are told which differs."""
    shape = (3, 2 + group.rank)
    raises(choir.Error, group.all_reduce_sparse, AT, ONES, shape, has="another shape")


if __name__ == "__main__":
    python_tests.main({sums: (1, 2, 3), by_name: 2, life: 2, refused: (1, 2), different: 2})
