#!/usr/bin/env python3
"""nccl_errors_test.py - every bad input of choir.nccl is its own exception, names the element, and begins nothing."""
# timeout: 60
import array
import ctypes
import pickle
import warnings

import python_tests
from python_tests import check, make_comms

python_tests.need_choir()

import numpy as np  # noqa: E402 # pylint: disable=wrong-import-position

import choir  # noqa: E402 # pylint: disable=wrong-import-position
from choir import _choir, nccl  # noqa: E402 # pylint: disable=wrong-import-position


class Elsewhere:
    """A tensor on a GPU, as far as DLPack tells."""

    def __dlpack_device__(self):
        return 2, 7

    def __dlpack__(self, **_):
        raise BufferError("not here")


class Sparse:
    """A tensor that is on a host, but is not dense."""

    def __dlpack_device__(self):
        return 1, 0

    def __dlpack__(self, **_):
        raise BufferError("a sparse tensor has no dense memory")


def foreign_capsule(name):
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return make(ctypes.addressof(MEMORY), name, None)


MEMORY = ctypes.create_string_buffer(4096)
NAME, OTHER_NAME = b"torch.cuda.nccl.Communicator", b"somebody.Else"


def ones(count=6, dtype="f4"):
    return np.ones(count, dtype)


def three(count=6, dtype="f4"):
    return [ones(count, dtype) for _ in range(3)]


def read_only():
    a = ones()
    a.flags.writeable = False
    return a


def gaps():
    return np.ones(12, "f4")[::2]


COMMS, PAIR, OTHER_PAIR, ALONE = make_comms(3), make_comms(2), make_comms(2), make_comms(1)
DESTROYED = nccl.Communicator.of(make_comms(1)[0])
DESTROYED.destroy()
SAME = ones()

# (line of the table, call, class, a base that PyTorch's exception has, index, what it says)
ROWS = [
    (1, lambda: _choir._nccl_all_reduce(three(), three()), nccl.SignatureError, TypeError, None, "int op"),
    (1, lambda: _choir._nccl_reduce(three(), ones(), 0, "sum", None, None), nccl.SignatureError, TypeError, None,
     "int root"),
    (1, lambda: _choir._nccl_broadcast(three(), None, None, None), nccl.SignatureError, TypeError, None, "int root"),
    (1, lambda: _choir._nccl_all_gather(three()), nccl.SignatureError, TypeError, None, "outputs"),
    (1, lambda: _choir._nccl_reduce_scatter(three(), three(), 0.5, None, None), nccl.SignatureError, TypeError, None,
     "int op"),
    (1, lambda: _choir._nccl_init_rank("2", b"", 0), nccl.SignatureError, TypeError, None, "int nranks"),
    (1, lambda: nccl.all_reduce(three(), op=2**40), nccl.SignatureError, TypeError, None, "int op"),
    (2, lambda: _choir._nccl_all_reduce(5, three(), 0, None, None), nccl.SequenceError, TypeError, None, "inputs is"),
    (2, lambda: _choir._nccl_all_reduce(three(), 5, 0, None, None), nccl.SequenceError, TypeError, None, "outputs is"),
    (2, lambda: nccl.all_reduce(ones()), nccl.SequenceError, TypeError, None, "collection of tensors"),
    (2, lambda: nccl.all_reduce(array.array("f", [1])), nccl.SequenceError, TypeError, None, "collection of tensors"),
    (2, lambda: nccl.broadcast(x for x in three()), nccl.SequenceError, TypeError, None, "generator"),
    (2, lambda: nccl.all_gather(three(), ones()), nccl.SequenceError, TypeError, None, "outputs should be"),
    (3, lambda: nccl.all_reduce([ones(), 3.0]), nccl.NotATensorError, TypeError, 1, "inputs[1] is <class 'float'>"),
    (3, lambda: nccl.all_reduce("ab"), nccl.NotATensorError, TypeError, 0, "<class 'str'>"),
    (3, lambda: nccl.all_gather(three(), [ones(18), ones(18), None]), nccl.NotATensorError, TypeError, 2, "outputs[2]"),
    (4, lambda: nccl.reduce(three(), output=7), nccl.NotATensorError, TypeError, None, "output is <class 'int'>"),
    (5, lambda: nccl.broadcast(three(), root=3), nccl.RootError, RuntimeError, None, "root is 3"),
    (5, lambda: nccl.broadcast(three(), root=-1), nccl.RootError, RuntimeError, None, "root is -1"),
    (5, lambda: nccl.reduce(three(), root=3), nccl.RootError, RuntimeError, None, "root is 3"),
    (5, lambda: nccl.broadcast([ones()], root=2, comms=PAIR[0]), nccl.RootError, RuntimeError, None, "from 0 to 1"),
    (5, lambda: nccl.reduce(three(), root=3, outputs=three()), nccl.RootError, RuntimeError, None, "root is 3"),
    (6, lambda: nccl.all_reduce(three(), streams=[None]), nccl.StreamCountError, RuntimeError, None, "1 streams for 3"),
    (6, lambda: nccl.all_reduce(three(), streams=[]), nccl.StreamCountError, RuntimeError, None, "0 streams for 3"),
    (7, lambda: nccl.all_reduce(three(), streams=4), nccl.StreamError, RuntimeError, None, "streams is"),
    (7, lambda: nccl.all_reduce(three(), streams=[None, "s", None]), nccl.StreamError, RuntimeError, 1, "streams[1]"),
    (8, lambda: nccl.all_reduce(three(), comms=5), nccl.NotACommError, TypeError, None, "comms is <class 'int'>"),
    (8, lambda: nccl.all_reduce(three(), comms=[COMMS[0], 5, 6]), nccl.NotACommError, TypeError, 1, "5 is no"),
    (9, lambda: nccl.all_reduce([ones()], comms=foreign_capsule(OTHER_NAME)), nccl.CapsuleError, ValueError, 0, "capsule"),
    (9, lambda: nccl.all_reduce([ones()], comms=foreign_capsule(NAME)), nccl.CapsuleError, ValueError, 0, "of Choir's"),
    (9, lambda: nccl.Communicator.of(foreign_capsule(NAME)), nccl.CapsuleError, ValueError, None, "of Choir's"),
    (10, lambda: nccl.all_reduce(three(), comms=COMMS[:2]), nccl.CommCountError, RuntimeError, None, "2 communicators"),
    (10, lambda: nccl.all_reduce(three(), comms=[]), nccl.CommCountError, RuntimeError, None, "no communicators"),
    (10, lambda: nccl.all_reduce(three(), comms=COMMS[0]), nccl.CommCountError, RuntimeError, None, "1 communicators"),
    (11, lambda: nccl.all_reduce([]), nccl.EmptyInputError, RuntimeError, None, "no inputs"),
    (11, lambda: nccl.broadcast(()), nccl.EmptyInputError, RuntimeError, None, "no inputs"),
    (12, lambda: nccl.all_reduce(three(), [ones()]), nccl.OutputCountError, RuntimeError, None, "1 outputs for 3"),
    (12, lambda: nccl.reduce_scatter(three(), []), nccl.OutputCountError, RuntimeError, None, "0 outputs for 3"),
    (12, lambda: nccl.reduce(three(), outputs=[]), nccl.OutputCountError, RuntimeError, None, "0 outputs for 3"),
    (13, lambda: nccl.all_reduce([ones(), Elsewhere()]), nccl.NotHostError, RuntimeError, 1, "device 2:7"),
    (13, lambda: nccl.all_reduce([ones(), Sparse()]), nccl.NotHostError, RuntimeError, 1, "dense memory"),
    (14, lambda: nccl.all_reduce([ones(), ones(), ones(6, "f8")]), nccl.DtypeError, RuntimeError, 2, "f64, expected f32"),
    (14, lambda: nccl.all_reduce([ones(), ones(6, "i4")]), nccl.DtypeError, TypeError, 1, "i32, expected f32"),
    (15, lambda: nccl.all_reduce([ones(), gaps()]), nccl.ContiguousError, RuntimeError, 1, "inputs[1]"),
    (16, lambda: nccl.all_reduce([ones(), ones(5)]), nccl.InputSizeError, RuntimeError, 1, "5 elements, expected 6"),
    (17, lambda: nccl.all_reduce(three(), [ones(), ones(), Sparse()]), nccl.NotHostError, RuntimeError, 2, "outputs[2]"),
    (17, lambda: nccl.all_reduce(three(), three(6, "f8")), nccl.DtypeError, RuntimeError, 0, "outputs[0]"),
    (17, lambda: nccl.all_reduce(three(), [ones(), gaps(), ones()]), nccl.ContiguousError, RuntimeError, 1, "outputs[1]"),
    (17, lambda: nccl.all_reduce(three(), [ones(), ones(), read_only()]), nccl.ReadOnlyError, RuntimeError, 2, "outputs[2]"),
    (17, lambda: nccl.broadcast([ones(), read_only()]), nccl.ReadOnlyError, RuntimeError, 1, "inputs[1]"),
    (18, lambda: nccl.all_reduce(three(), [ones(), Elsewhere(), ones()]), nccl.DeviceError, RuntimeError, 1, "as its input is"),
    (19, lambda: nccl.all_reduce(three(), [ones(), ones(5), ones()]), nccl.OutputSizeError, RuntimeError, 1, "outputs[1]: 5"),
    (19, lambda: nccl.all_gather(three(), three()), nccl.OutputSizeError, RuntimeError, 0, "times the ranks"),
    (19, lambda: nccl.reduce_scatter(three(), three()), nccl.OutputSizeError, RuntimeError, 0, "3 ranks"),
    (19, lambda: nccl.reduce(three(), ones(5)), nccl.OutputSizeError, RuntimeError, 0, "5 elements"),
    (19, lambda: nccl.all_gather([ones()], [ones()], comms=PAIR[0]), nccl.OutputSizeError, RuntimeError, 0, "2 ranks"),
    (19, lambda: nccl.reduce_scatter([ones()], [ones()], comms=PAIR[0]), nccl.OutputSizeError, RuntimeError, 0, "2 ranks"),
    (20, lambda: nccl.all_reduce([SAME, ones(), SAME]), nccl.UniqueError, RuntimeError, 2, "same memory"),
    (20, lambda: nccl.broadcast([SAME, SAME]), nccl.UniqueError, RuntimeError, 1, "same memory"),
    (20, lambda: nccl.all_reduce(three(), comms=[COMMS[0], COMMS[1], COMMS[0]]), nccl.UniqueError, RuntimeError, 2,
     "comms[2] is comms[0]"),
    (20, lambda: nccl.reduce([ones(), ones()], ones(), 0, comms=[PAIR[0], OTHER_PAIR[0]]), nccl.UniqueError, RuntimeError, 1,
     "both rank 0, the root"),
    (21, lambda: nccl.all_reduce([np.zeros(2, "M8[s]")]), nccl.UnconvertibleTypeError, RuntimeError, 0, "inputs[0]"),
    (21, lambda: nccl.all_reduce([np.zeros(2, "S3")]), nccl.UnconvertibleTypeError, RuntimeError, 0, "unconvertible"),
    (21, lambda: nccl.all_reduce([np.zeros(2, "f4,i4")]), nccl.UnconvertibleTypeError, TypeError, 0, "inputs[0]"),
    (22, lambda: nccl.init_rank(1, bytes(127), 0), nccl.IdLengthError, RuntimeError, None, "127 bytes, expected 128"),
    (22, lambda: nccl.init_rank(1, bytes(129), 0), nccl.IdLengthError, RuntimeError, None, "129 bytes, expected 128"),
    (22, lambda: nccl.init_rank(1, "x" * 128, 0), nccl.IdTypeError, TypeError, None, "expected bytes"),
    (23, lambda: nccl.init_rank(1, bytes(128), 0), choir.InvalidError, RuntimeError, None, "id of Choir's"),
    (23, lambda: nccl.init_rank(0, nccl.unique_id(), 0), choir.InvalidError, RuntimeError, None, "nranks: 0"),
    (23, lambda: nccl.init_rank(2, nccl.unique_id(), 2), choir.InvalidError, RuntimeError, None, "rank: 2"),
    (23, lambda: nccl.init_rank(2, nccl.unique_id(), 0, timeout=0.2), choir.TimeoutError, RuntimeError, None, "missing: 1"),
    # What PyTorch's module does not look at:
    ("op", lambda: nccl.all_reduce(three(), op=5), nccl.OpError, ValueError, None, "op: 5"),
    ("op", lambda: nccl.all_reduce(three(), op=-1), nccl.OpError, RuntimeError, None, "op: -1"),
    ("op", lambda: nccl.all_reduce(three(6, "?"), op=nccl.AVG), nccl.OpDtypeError, TypeError, None, "bool"),
    ("op", lambda: nccl.all_reduce(three(6, "c8"), op=nccl.MAX), nccl.OpDtypeError, RuntimeError, None, "complex64"),
    ("size", lambda: nccl.all_reduce([ones(), ones()], comms=[PAIR[0], ALONE[0]]), nccl.CommSizeError, ValueError, 1,
     "comms[1] has 1 ranks"),
    ("state", lambda: nccl.all_reduce([ones()], comms=DESTROYED), nccl.CommStateError, RuntimeError, 0, "destroyed"),
    ("overlap", lambda: nccl.all_reduce([SAME[:5]], [SAME[1:]]), nccl.OverlapError, RuntimeError, 0, "exactly in place"),
]


def refused():
    warnings.simplefilter("ignore", FutureWarning)
    for line, call, kind, base, index, says in ROWS:
        try:
            call()
        except Exception as e:  # pylint: disable=broad-exception-caught
            what = f"line {line}: {type(e).__mro__}: {e}"
            if not isinstance(e, kind) or not isinstance(e, base) or not isinstance(e, choir.Error) or says not in str(e):
                raise AssertionError(f"{what}\nexpected {kind}, a {base}, that says {says!r}") from e
            check(getattr(e, "index", None), index, what + ": index")
        else:
            raise AssertionError(f"line {line}, {kind}: nothing was raised")
    check(sorted({r[0] for r in ROWS if isinstance(r[0], int)}), list(range(1, 24)), "lines of the table")
    check(SAME.tolist(), [1.0] * 6, "memory of calls that were refused")


def nothing_begun():
    """Communicators do not know of calls that were refused."""
    for comms in (COMMS, PAIR, OTHER_PAIR, ALONE):
        tensors = [ones() for _ in comms]
        nccl.all_reduce(tensors, comms=comms)
        for t in tensors:
            check(t.tolist(), [float(len(comms))] * 6)


def pickled():
    """As when another process is to be told."""
    for kind, call in ((nccl.EmptyInputError, lambda: nccl.all_reduce([])),
                       (choir.TimeoutError, lambda: nccl.init_rank(2, nccl.unique_id(), 0, timeout=0.05)),
                       (choir.InvalidError, lambda: nccl.init_rank(0, nccl.unique_id(), 0))):
        error = python_tests.raises(kind, call)
        again = pickle.loads(pickle.dumps(error))
        check((type(again), again.args, again.__dict__), (type(error), error.args, error.__dict__), "what is unpickled")


if __name__ == "__main__":
    python_tests.main({refused: 0, nothing_begun: 0, pickled: 0})
