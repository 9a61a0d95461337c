#!/usr/bin/env python3
"""python_buffers_test.py - all element types from numpy, PyTorch and plain buffers; strides; what is refused; no copies."""
# timeout: 120
import array
import mmap

import python_tests
from python_tests import check, raises

python_tests.need_choir("torch")

import numpy as np  # noqa: E402 # pylint: disable=wrong-import-position
import torch  # noqa: E402 # pylint: disable=wrong-import-position

import choir  # noqa: E402 # pylint: disable=wrong-import-position


def numpy_types(group):
    n = group.size
    for letters in ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "c8", "c16", "<i4", "=f8"):
        a = np.ones(5, letters)
        group.all_reduce(a)
        check(a.tolist(), np.full(5, n, letters).tolist(), letters)
    check(group.all_reduce(np.array([True, False])).tolist(), [True, False])
    check(group.all_reduce(np.ones((), "f4")).item(), n, "an array without dimensions")
    check(group.all_reduce(np.ones((0, 3), "f4")).shape, (0, 3), "an array without elements")
    raises(TypeError, group.all_reduce, np.ones(2, ">f4"), has="dtype=")
    raises(TypeError, group.all_reduce, np.zeros(2, "S3"))


def other_buffers(group):
    n = group.size
    check(group.all_reduce(array.array("d", [1, 2])).tolist(), [n, 2 * n])
    check(group.all_reduce(array.array("l", [1, 2])).tolist(), [n, 2 * n])
    check(group.all_reduce(bytearray(b"\1\2")), bytearray([n, 2 * n]))
    check(group.all_reduce(memoryview(bytearray(8)).cast("f")).tolist(), [0, 0])
    with mmap.mmap(-1, 4096) as m:
        m[0] = 1
        group.all_reduce(m)
        check(m[0], n)
    raises(BufferError, group.all_reduce, b"1234", has="read-only")
    for thing in (3, "text", None, [1.0]):
        raises(TypeError, group.all_reduce, thing)


def by_name(group):
    n = group.size
    one = {"bf16": 0x3f80, "bfloat16": 0x3f80, "f16": 0x3c00, "f8e4m3": 0x38, "float8_e5m2": 0x3c}
    want = {1: one, 2: {"bf16": 0x4000, "bfloat16": 0x4000, "f16": 0x4000, "f8e4m3": 0x40, "float8_e5m2": 0x40}}[n]
    for name, bits in one.items():
        a = np.full(3, bits, "u1" if "8" in name.replace("16", "") and name[0] == "f" and name != "f16" else "u2")
        check(group.all_reduce(a, dtype=name).tolist(), [want[name]] * 3, name)
    check(group.all_reduce(bytearray(np.ones(2, "f4").tobytes()), dtype="f32"), bytearray(np.full(2, n, "f4").tobytes()))
    raises(ValueError, group.all_reduce, np.ones(3, "f4"), dtype="f17", has="f17")
    raises(ValueError, group.all_reduce, bytearray(3), dtype="f32", has="4 bytes")
    raises(TypeError, group.all_reduce, np.ones(3, "f4"), dtype=3)


def strides(group):
    n = group.size
    whole = np.arange(24.0).reshape(4, 6)
    for part in (whole[:, ::2], whole[1:3, 2:5], whole.T, whole[::3]):
        before, rest = part.copy(), whole.sum() - part.sum()
        group.all_reduce(part)
        check(part.tolist(), (before * n).tolist())
        check(whole.sum() - part.sum(), rest, "what is beside it")
    raises(ValueError, group.all_reduce, np.arange(5.0)[::-1], has="stride")
    raises(ValueError, group.all_reduce, np.lib.stride_tricks.as_strided(np.zeros(3), (3,), (0,)), has="stride")
    a = np.zeros(3, dtype=[("x", "f4"), ("y", "i1")])["x"]  # 5 bytes apart
    raises(BufferError, group.all_reduce, a, has="whole numbers")
    t = torch.arange(24.0).reshape(4, 6)
    group.all_reduce(t.t()[1:3])
    check(t[:, 1:3].tolist(), (torch.arange(24.0).reshape(4, 6)[:, 1:3] * n).tolist())


def refused(group):
    locked = np.ones(3)
    locked.flags.writeable = False
    raises(BufferError, group.all_reduce, locked, has="read-only")
    raises(BufferError, group.recv, locked, 0, has="read-only")
    group.all_reduce(np.zeros(3), input=locked)
    group.all_gather([np.zeros(3) for _ in range(group.size)], locked)
    raises(ValueError, group.all_reduce, np.zeros(3), input=np.zeros(4), has="input")
    raises(ValueError, group.all_reduce, np.zeros(3), input=np.zeros(3, "f4"), has="input")
    raises(ValueError, group.all_gather, [np.zeros(3)] * (group.size + 1), np.zeros(3), has="ranks")
    raises(TypeError, group.all_to_all, [np.zeros(3)] * group.size, np.zeros(3), has="list")
    raises((BufferError, RuntimeError), group.all_reduce, torch.ones(3, device="meta"))
    for lazy in (torch.ones(3, dtype=torch.complex64).conj(), torch.ones(3, dtype=torch.complex64).conj().imag,
                 torch._neg_view(torch.ones(4)), torch._neg_view(torch.ones(4, dtype=torch.int64))):
        raises((BufferError, RuntimeError), group.all_reduce, lazy)
        raises((BufferError, RuntimeError), group.all_reduce, torch.zeros_like(lazy).resolve_neg(), input=lazy)
        raises((BufferError, RuntimeError), group.all_reduce, lazy, async_op=True)
    check(group.error, None, "nothing of it harms the group")


def torch_types(group):
    n = group.size
    for name in ("uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64",
                 "complex128", "float8_e4m3fn", "float8_e5m2", "uint16", "uint32", "uint64"):
        t = torch.ones(5).to(getattr(torch, name))
        at = t.data_ptr()
        check(group.all_reduce(t) is t, True)
        check((t.to(torch.complex64).tolist(), t.data_ptr()), ([n] * 5, at), name)
        t = torch.ones(5).to(getattr(torch, name))
        work = group.all_reduce(t, async_op=True)
        del t
        check(work.wait(20).to(torch.complex64).tolist(), [n] * 5, name)
    p = torch.nn.Parameter(torch.ones(3))
    group.all_reduce(p)
    check(p.tolist(), [n] * 3, "a tensor that requires gradients")
    group.all_reduce(torch.ones(()))
    group.all_reduce(torch.ones(0, 4))


class Exporter:
    """An array behind __dlpack__ alone, of the old kind or the new."""

    def __init__(self, array_, versioned):
        self.array, self.versioned = array_, versioned

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **more):
        if self.versioned:
            return self.array.__dlpack__(**more)
        if more:
            raise TypeError("no arguments")
        return self.array.__dlpack__()


def dlpack(group):
    n = group.size
    for versioned in (False, True):
        a = np.ones(4, "f4")
        group.all_reduce(Exporter(a, versioned))
        check(a.tolist(), [n] * 4)
        work = group.all_reduce(Exporter(a, versioned), async_op=True)
        work.wait(20)
        check(a.tolist(), [n * n] * 4)
    locked = np.ones(4, "f4")
    locked.flags.writeable = False
    raises(BufferError, group.all_reduce, Exporter(locked, True), has="read-only")
    group.all_reduce(np.zeros(4, "f4"), input=Exporter(locked, True))


def lent_memory_is_held(group):
    """What is lent cannot be resized meanwhile, nor freed when its handle is dropped."""
    b = bytearray(8)
    if group.rank == 0:
        work = group.recv(b, 1, async_op=True)
        raises(BufferError, b.append, 1)
        group.send(np.zeros(1, "u1"), 1)
        work.wait(20)
        b.append(1)
        check(b, bytearray(b"abcdefgh\1"))
    else:
        group.recv(np.zeros(1, "u1"), 0)
        group.send(b"abcdefgh", 0)


def tensors_may_change_memory(group):
    """A tensor gets other memory while its own is lent; that would go back to the system, as below."""
    change = {"data": lambda x: setattr(x, "data", torch.zeros(1)), "set_": lambda x: x.set_()}
    for how, call in change.items():
        x = torch.nn.Parameter(torch.full((10 << 20,), group.rank + 1.0), requires_grad=False)
        if group.rank == 0:
            work = group.all_reduce(x, async_op=True)
            call(x)
            group.send(np.zeros(1, "u1"), 1)
            check(tuple(work.wait(20).shape) in ((0,), (1,)), True, how)
        else:
            group.recv(np.zeros(1, "u1"), 0)
            check(int(group.all_reduce(x)[-1]), 3, how)


def lists_may_lose_elements(group):
    """Another thread empties the list of a call under way: what is that large goes back to the system once it is freed, and
    to write there would end the process."""
    outs, mine = [torch.zeros(40 << 20, dtype=torch.uint8) for _ in range(2)], torch.ones(40 << 20, dtype=torch.uint8)

    def empty():
        outs.clear()
        group.send(np.zeros(1, "u1"), 1)

    if group.rank == 0:
        late = python_tests.when_asleep(empty)
        group.all_gather(outs, mine)
        late.join()
    else:
        group.recv(np.zeros(1, "u1"), 0)
        group.all_gather(outs, mine)
        check(int(outs[0][-1]), 1)


if __name__ == "__main__":
    python_tests.main({numpy_types: (1, 2), other_buffers: 2, by_name: (1, 2), strides: 2, refused: (1, 2), torch_types: 2,
                       dlpack: 2, lent_memory_is_held: 2, lists_may_lose_elements: 2, tensors_may_change_memory: 2})
