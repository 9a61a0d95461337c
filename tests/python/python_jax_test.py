#!/usr/bin/env python3
"""python_jax_test.py - JAX arrays on the host: read in place, results are new arrays; and numpy with ml_dtypes."""
# timeout: 120
import re

import python_tests
from python_tests import check, raises

python_tests.need_choir("jax")  # scripts/setup installs it for `make test-all`

import jax  # noqa: E402 # pylint: disable=wrong-import-position
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


def refused(group):
    """An array is given when it is whole, or not at all."""
    x = jnp.ones(2 * group.size)
    for call in (cj.all_reduce, cj.broadcast, cj.all_gather, cj.reduce_scatter, cj.all_to_all):
        sequence = group.collective_sequence
        raises(NotImplementedError, call, group, x, async_op=True, has="async_op")
        for trace, given in ((jax.jit, x), (jax.grad, x), (jax.vmap, x.reshape(1, -1))):
            raises(TypeError, trace(lambda v, call=call: call(group, v).sum()), given)
        check(group.collective_sequence, sequence, "nothing begun")
        with group.batch():
            raises(NotImplementedError, call, group, x, has="batch")
        check(call(group, x, async_op=False, timeout=20).dtype, x.dtype)
    group.barrier()


def memory_is_taken_over(group):
    """The array is where the operation wrote, aligned as JAX wants it, and nobody else has it."""
    made = []
    fresh = cj._fresh
    cj._fresh = lambda *given: made.append(fresh(*given)) or made[-1]
    try:
        for count in (1, 7, 100000):
            for dtype in ("float32", "bfloat16", "uint8"):
                x = jnp.ones(count * group.size, dtype)
                for call in (cj.all_reduce, cj.all_gather, cj.reduce_scatter, cj.all_to_all):
                    y = call(group, x)
                    check(y.unsafe_buffer_pointer(), made.pop().ctypes.data, f"the memory of {call.__name__}")
                    check(y.devices(), x.devices())
    finally:
        cj._fresh = fresh
    check(cj.all_gather(group, jnp.ones((0, 2))).shape, (group.size, 0, 2), "no elements")


def page(group):
    """The example of docs/python.md, which not everybody can run."""
    text = (python_tests.SOURCE / "docs" / "python.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```py\n(.*?)^```$", text, re.M | re.S)
    found = {"__name__": "__main__"}
    exec(compile(code, "python.md", "exec"), found)  # pylint: disable=exec-used
    check(found["total"].tolist(), [group.size] * 3)
    check(found["later"].tolist(), [group.size * group.size] * 3)


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
    python_tests.main({arrays: (1, 2), refused: (1, 2), memory_is_taken_over: 2, page: 2, ml_types: 2})
