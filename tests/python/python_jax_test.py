#!/usr/bin/env python3
"""python_jax_test.py - JAX arrays on the host: read in place, results are new arrays; and numpy with ml_dtypes."""
# timeout: 120
import python_tests
from python_tests import check, raises

python_tests.need_choir("jax")

import jax.numpy as jnp  # noqa: E402 # pylint: disable=wrong-import-position
import ml_dtypes  # noqa: E402 # pylint: disable=wrong-import-position
import numpy as np  # noqa: E402 # pylint: disable=wrong-import-position

import choir.jax as cj  # noqa: E402 # pylint: disable=wrong-import-position


def arrays(group):
    n, r = group.size, group.rank
    for dtype in ("float32", "int32", "bfloat16", "float16", "uint8", "bool", "complex64", "float8_e4m3fn", "float8_e5m2"):
        x = jnp.ones((n, 3), dtype)
        y = cj.all_reduce(group, x)
        check((y.dtype, y.shape, y.astype("complex64").tolist()),
              (x.dtype, x.shape, [[1 if dtype == "bool" else n] * 3] * n), dtype)
        check(x.astype("complex64").tolist(), [[1] * 3] * n, "the input")
    x = jnp.arange(2.0 * n) + r
    check(cj.all_gather(group, x).tolist(), [[i + k for i in range(2 * n)] for k in range(n)])
    check(cj.broadcast(group, x, n - 1).tolist(), [i + n - 1 for i in range(2 * n)])
    check(cj.reduce_scatter(group, x).tolist(), [n * (2 * r + i) + n * (n - 1) / 2 for i in range(2)])
    check(cj.all_to_all(group, x).tolist(), [2 * r + i + k for k in range(n) for i in range(2)])
    raises(ValueError, cj.reduce_scatter, group, jnp.ones(n + 1) if n > 1 else jnp.ones(()), has="not divided")
    raises(BufferError, group.all_reduce, x, has="read-only")
    work = group.all_reduce(np.empty(2 * n, "f4"), input=x, async_op=True)
    del x
    check(work.wait(20).tolist(), [n * i + n * (n - 1) / 2 for i in range(2 * n)])


def ml_types(group):
    n = group.size
    for dtype in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
        a = np.ones((2, 3), dtype)
        group.all_reduce(a)
        check(a.astype("f4").tolist(), [[n] * 3] * 2)
        group.all_reduce(a[:, 1])
        check(a.astype("f4").tolist(), [[n, n * n, n]] * 2)
    locked = np.ones(2, ml_dtypes.bfloat16)
    locked.flags.writeable = False
    raises((BufferError, ValueError), group.all_reduce, locked)


if __name__ == "__main__":
    python_tests.main({arrays: (1, 2), ml_types: 2})
