#!/usr/bin/env python3
"""nccl_calls_test.py - choir.nccl where one process is all ranks: versions, ids, lists, roots, in place, reductions of all types."""
# timeout: 120
import array
import warnings
import weakref

import python_tests
from python_tests import check, make_comms, raises

python_tests.need_choir("torch")

import numpy as np  # noqa: E402 # pylint: disable=wrong-import-position
import torch  # noqa: E402 # pylint: disable=wrong-import-position

import choir  # noqa: E402 # pylint: disable=wrong-import-position
from choir import _choir, nccl  # noqa: E402 # pylint: disable=wrong-import-position

NAME = "torch.cuda.nccl.Communicator"


def versions_and_ids():
    numbers = tuple(int(n) for n in choir.__version__.split("."))
    check(nccl.version(), numbers)
    check(nccl.version(compiled=True), numbers)
    check(nccl.version_suffix(), b"")
    check(_choir._nccl_version(), (numbers[0] << 32) + (numbers[1] << 16) + numbers[2])
    uid = nccl.unique_id()
    check((type(uid), len(uid)), (bytes, 128))
    check(len({nccl.unique_id() for _ in range(100)}), 100, "different ids")
    raises(ValueError, nccl.unique_id, library="gloo", has="gloo")
    first, second = make_comms(2, uid), make_comms(2, uid)  # an id serves again
    for comms in (first, second, second, first):
        a = [np.ones(2), np.ones(2)]
        nccl.all_reduce(a, comms=comms)
        check(a[1].tolist(), [2, 2])
    nccl.all_reduce([np.ones(1)], comms=nccl.init_rank(1, bytearray(uid), 0))
    check(repr(first[0]).startswith(f'<capsule object "{NAME}"'), True, repr(first[0]))


def lists():
    """Collections of all kinds; generators only below the wrapper."""
    for kind in (list, tuple, lambda x: dict(enumerate(x)).values()):
        a = kind([np.full(3, i, "f4") for i in range(4)])
        if not isinstance(a, (list, tuple)):
            _choir._nccl_all_reduce(a, a, 0, None, None)
        else:
            nccl.all_reduce(a)
        check([x.tolist() for x in a], [[6.0] * 3] * 4)
    a = {torch.full((3,), float(i)) for i in range(4)}  # numpy's arrays cannot be in a set
    nccl.all_reduce(a)
    check([x.tolist() for x in a], [[6.0] * 3] * 4)
    a = [np.full(3, i, "f4") for i in range(4)]
    _choir._nccl_broadcast((x for x in a), 2, None, None)
    check([x.tolist() for x in a], [[2.0] * 3] * 4)
    check(nccl.is_available(a), True)
    check(nccl.is_available([a[0][::2]]), False)
    check(nccl.is_available([3]), False)
    nccl.clear_cache()


def kinds_of_memory():
    for make in (lambda v: np.array(v, "f4"), lambda v: torch.tensor(v, dtype=torch.float32),
                 lambda v: memoryview(np.array(v, "f4")), lambda v: torch.nn.Parameter(torch.tensor(v))):
        a = [make([1.0, 2.0]), make([10.0, 20.0])]
        nccl.all_reduce(a)
        check([[float(v) for v in (t.detach() if hasattr(t, "detach") else t)] for t in a], [[11, 22], [11, 22]])
    a = [np.ones(2, "f4"), torch.ones(2)]  # one of each
    nccl.all_reduce(a)
    check((a[0].tolist(), a[1].tolist()), ([2, 2], [2, 2]))
    a = [np.zeros(0, "f4"), np.zeros(0, "f4")]
    nccl.all_reduce(a)
    nccl.all_gather(a, [np.zeros(0, "f4"), np.zeros(0, "f4")])


def kinds_of_tensors_refused():
    for tensor, kind in ((torch.eye(3).to_sparse(), nccl.NotHostError), (torch.ones(3, device="meta"), nccl.NotHostError),
                         (torch.ones(3, dtype=torch.float8_e4m3fnuz), nccl.UnconvertibleTypeError),
                         (torch.ones(2, 3).t(), nccl.ContiguousError)):
        e = raises(kind, nccl.all_reduce, [torch.ones(6, dtype=tensor.dtype), tensor])
        check((e.index, "\n" in str(e)), (int(kind is not nccl.UnconvertibleTypeError), False), "index, lines")


def types_that_are_only_stored():
    """NCCL moves every kind of float8 as bytes; only where nothing is added up that is right."""
    for dtype in (torch.float8_e4m3fnuz, torch.float8_e5m2fnuz):
        a = [torch.tensor([1.0, r]).to(dtype) for r in range(2)]
        out = [torch.zeros(4).to(dtype) for _ in range(2)]
        nccl.all_gather(a, out)
        check(out[1].float().tolist(), [1, 0, 1, 1])
        nccl.broadcast(a, root=1)
        check(a[0].float().tolist(), [1, 1])
        for call in (nccl.all_reduce, nccl.reduce):
            raises(nccl.UnconvertibleTypeError, call, a)


class Stream:
    """What a stream needs here."""

    def __init__(self):
        self.waited = 0

    def synchronize(self):
        self.waited += 1


def streams():
    s, a = Stream(), [np.ones(1), np.ones(1)]
    nccl.all_reduce(a, streams=[s, None])
    nccl.all_reduce(a, streams=(torch.cpu.current_stream(), torch.Stream(device="cpu")))
    check((s.waited, a[0][0]), (1, 4.0))


def ways(n):
    """None, explicit communicators as capsules and as objects."""
    comms = make_comms(n)
    yield None
    yield comms
    yield [nccl.Communicator.of(c) for c in comms]


def every_root():
    for n in (1, 2, 3, 5):
        for comms in ways(n):
            for root in range(n):
                a = [np.arange(4) + 10 * r for r in range(n)]
                nccl.broadcast(a, root, comms=comms)
                check([x.tolist() for x in a], [list(range(10 * root, 10 * root + 4))] * n)
                a = [np.full(2, r + 1) for r in range(n)]
                out = np.zeros(2, "i8")
                nccl.reduce(a, out, root, comms=comms)
                check((out.tolist(), a[0].tolist()), ([n * (n + 1) // 2] * 2, [1, 1]))
                nccl.reduce(a, root=root, comms=comms)
                check([x[0] for x in a], [n * (n + 1) // 2 if r == root else r + 1 for r in range(n)])
    a, keep = [np.ones(2), np.ones(2)], np.ones(2)
    keep.flags.writeable = False
    nccl.reduce([keep, a[1]], root=1)  # only the root's has to be writable
    check(a[1].tolist(), [2, 2])


def old_reduce():
    a, out = [np.ones(2), np.ones(2)], [np.zeros(2), np.zeros(2)]
    for arguments in ({"outputs": out}, {"output": out}):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            nccl.reduce(a, root=1, **arguments)
        check([w.category for w in seen], [FutureWarning])
        check(out[1].tolist(), [2, 2])
    raises(ValueError, nccl.reduce, a, out[0], outputs=out, has="both")
    warnings.simplefilter("ignore", FutureWarning)
    comms, out = make_comms(2)[::-1], [np.zeros(2), np.zeros(2)]  # the root's is where the root's communicator is
    nccl.reduce([np.ones(2), np.ones(2)], root=1, outputs=out, comms=comms)
    check([x.tolist() for x in out], [[2, 2], [0, 0]])


def shares():
    for n in (1, 2, 3, 4):
        for comms in ways(n):
            a = [np.arange(3) + 10 * r for r in range(n)]
            out = [np.zeros(3 * n, "i8") for _ in range(n)]
            nccl.all_gather(a, out, comms=comms)
            check([o.tolist() for o in out], [np.concatenate(a).tolist()] * n)
            a = [np.arange(2 * n) + r for r in range(n)]
            out, want = [np.zeros(2, "i8") for _ in range(n)], sum(np.arange(2 * n) + r for r in range(n))
            nccl.reduce_scatter(a, out, comms=comms)
            check(np.concatenate(out).tolist(), want.tolist())


def in_place():
    for n in (1, 2, 3):
        for comms in ways(n):
            out = [np.zeros(3 * n, "i8") for _ in range(n)]
            for r in range(n):
                out[r][3 * r:3 * r + 3] = r + 1
            nccl.all_gather([out[r][3 * r:3 * r + 3] for r in range(n)], out, comms=comms)
            check([o.tolist() for o in out], [np.repeat(np.arange(n) + 1, 3).tolist()] * n)
            a = [np.arange(3 * n) for _ in range(n)]
            nccl.reduce_scatter(a, [a[r][3 * r:3 * r + 3] for r in range(n)], comms=comms)
            check([a[r][3 * r:3 * r + 3].tolist() for r in range(n)], (np.arange(3 * n) * n).reshape(n, 3).tolist())
            a = [np.arange(4) + r for r in range(n)]
            nccl.all_reduce(a, a, op=nccl.MAX, comms=comms)
            check(a[0].tolist(), (np.arange(4) + n - 1).tolist())
            b = [np.zeros(8, "i8") for _ in range(n)]
            raises(nccl.OverlapError, nccl.all_reduce, [x[:4] for x in b], [x[1:5] for x in b], comms=comms)
            raises(nccl.OverlapError, nccl.all_gather, [x[1:2] for x in b], [x[:n] for x in b], comms=comms) \
                if n == 3 else None


FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2]
INTEGERS = [torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32, torch.uint64, torch.int64]
OPS = {nccl.SUM: lambda x: x.sum(0), nccl.PROD: lambda x: x.prod(0), nccl.MAX: lambda x: x.amax(0),
       nccl.MIN: lambda x: x.amin(0)}


def reductions_of_types():
    values = torch.tensor([[1, 2, 3, 0], [2, 2, 1, 1], [3, 1, 2, 2]])
    mean = {False: torch.tensor([2, 1, 2, 1]), True: torch.tensor([2, 5 / 3, 2, 1], dtype=torch.float64)}
    for comms in ways(3):
        for dtype in FLOATS + INTEGERS:
            for op in (*OPS, nccl.AVG):
                want = mean[dtype in FLOATS] if op == nccl.AVG else OPS[op](values)
                a = [v.to(dtype, copy=True) for v in values]
                nccl.all_reduce(a, op=op, comms=comms)
                for t in a:
                    check(t.double().tolist(), want.to(dtype).double().tolist(), f"{op} of {dtype}")
        for dtype in (torch.complex64, torch.complex128):
            a = [torch.tensor([1 + 2j, r * 1j], dtype=dtype) for r in range(3)]
            nccl.all_reduce(a, comms=comms)
            check(a[2].tolist(), [3 + 6j, 3j])
            nccl.all_reduce(a, op=nccl.AVG, comms=comms)
            check(a[2].tolist(), [3 + 6j, 3j])
            for op in (nccl.PROD, nccl.MAX, nccl.MIN):
                raises(nccl.OpDtypeError, nccl.all_reduce, a, op=op, comms=comms)


def what_nccl_adds_up_wrongly():
    """NCCL adds bool and 8-bit floats as bytes, and takes no 16-bit integers."""
    for comms in ways(2):
        for op, want in ((nccl.SUM, [0, 1, 1]), (nccl.MAX, [0, 1, 1]), (nccl.PROD, [0, 0, 1]), (nccl.MIN, [0, 0, 1])):
            a = [torch.tensor([False, False, True]), torch.tensor([False, True, True])]
            nccl.all_reduce(a, op=op, comms=comms)
            check(a[0].view(torch.uint8).tolist(), want, f"{op} of bool")
        raises(nccl.OpDtypeError, nccl.all_reduce, [torch.ones(2, dtype=torch.bool) for _ in range(2)], op=nccl.AVG,
               comms=comms, has="bool")
        for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
            a = [torch.tensor([1.0, 1.5]).to(dtype), torch.tensor([2.0, 0.25]).to(dtype)]
            nccl.all_reduce(a, comms=comms)
            check(a[1].float().tolist(), [3.0, 1.75], f"sum of {dtype}")
        a = [np.array([-7, 7, 300], "i2"), np.array([0, 0, 300], "i2")]
        nccl.all_reduce(a, op=nccl.AVG, comms=comms)  # truncated, sign kept
        check(a[0].tolist(), [-3, 3, 300])
        a = [np.array([200], "u1"), np.array([100], "u1")]
        nccl.all_reduce(a, comms=comms)
        check(a[0].tolist(), [44], "a sum that wraps")
    for op in (nccl.MAX, nccl.MIN):
        a = [np.array([np.nan, 1.0]), np.array([0.0, 2.0])]
        nccl.all_reduce(a, op=op)
        check(bool(np.isnan(a[0][0])), True, "a NaN is handed on")


def factors():
    """premul-sum: read at once or in each call; of one communicator, of one type, until it is destroyed."""
    with nccl.Communicator(1, nccl.unique_id(), 0) as comm, nccl.Communicator(1, nccl.unique_id(), 0) as other:
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
            factor = torch.tensor([3.0], dtype=dtype)
            copied, lent = comm.premul_sum(factor), comm.premul_sum(factor, lent=True)
            factor[0] = 5
            for op, want in ((copied, 6.0), (lent, 10.0)):
                a = torch.tensor([2.0], dtype=dtype)
                nccl.all_reduce([a], op=op, comms=comm)
                check(a.item(), want, f"factor of {dtype}")
        raises(nccl.OpError, nccl.all_reduce, [a], op=copied, comms=other, has="another communicator's")
        raises(nccl.OpError, nccl.all_reduce, [np.ones(1, "f4")], op=copied, comms=comm, has="made for bf16")
        raises(nccl.OpError, nccl.all_reduce, [a], op=copied)
        comm.redop_destroy(copied)
        raises(nccl.OpError, nccl.all_reduce, [a], op=copied, comms=comm, has="destroyed")
        raises(nccl.OpError, comm.redop_destroy, copied)
        raises(nccl.OpError, comm.redop_destroy, nccl.SUM)
        raises(nccl.OpDtypeError, comm.premul_sum, np.ones(1, "i4"))
        raises(nccl.InputSizeError, comm.premul_sum, np.ones(2, "f4"))


def lent_factors_stay():
    """Whoever has forgotten the factor and the Communicator, as long as the capsule and the reduction are there."""
    capsule = nccl.init_rank(1, nccl.unique_id(), 0)
    factor = array.array("f", [3.0])
    op = nccl.Communicator.of(capsule).premul_sum(factor, lent=True)
    raises(BufferError, factor.append, 1.0)  # which would move it
    alive = weakref.ref(factor)
    del factor
    check(alive() is not None, True, "the factor is there")
    a = np.ones(2, "f4")
    nccl.all_reduce([a], op=op, comms=capsule)
    check(a.tolist(), [3, 3])
    nccl.Communicator.of(capsule).redop_destroy(op)
    check(alive() is None, True, "the factor is given back")
    nccl.Communicator.of(capsule).premul_sum(factor := array.array("f", [3.0]), lent=True)
    alive = weakref.ref(factor)
    del factor, capsule
    check(alive() is None, True, "the factor goes with the capsule")


def life():
    comms = [nccl.Communicator.of(c) for c in make_comms(2)]
    check([(c.rank, c.size, c.error()) for c in comms], [(0, 2, None), (1, 2, None)])
    comms[0].finalize()
    raises(nccl.CommStateError, comms[0].finalize, has="finalized")
    raises(nccl.CommStateError, nccl.all_reduce, [np.ones(1)], comms=comms[0], has="finalized")
    comms[1].abort()
    check(isinstance(comms[1].error(), choir.Error), True)
    raises(RuntimeError, nccl.all_reduce, [np.ones(1)], comms=comms[1], has="abort")
    for c in comms:
        c.destroy()
        c.destroy()
        check(isinstance(c.error(), choir.StateError), True)


def a_communicator_lasts_as_long_as_its_calls():
    """Also if its object has another, or none, by then."""
    comms = make_comms(2)
    held, a = nccl.Communicator.of(comms.pop(0)), np.ones(1)

    def let_go():
        held.capsule = None
        nccl.all_reduce([np.ones(1)], comms=comms[0])

    late = python_tests.when_asleep(let_go)
    nccl.all_reduce([a], comms=held)
    late.join()
    check(a[0], 2.0)

    class Fresh:
        """Of a communicator that nobody else holds."""

        @property
        def capsule(self):
            return make_comms(1)[0]

    nccl.all_reduce([a], comms=Fresh())


def other_threads_run():
    """The interpreter is free while a call waits: the rank it waits for is another thread."""
    comms = make_comms(2)
    late = python_tests.when_asleep(lambda: nccl.all_reduce([np.ones(1)], comms=comms[1]))
    a = np.ones(1)
    nccl.all_reduce([a], comms=comms[0])
    late.join()
    check(a[0], 2.0)


if __name__ == "__main__":
    python_tests.main({f: 0 for f in (
        versions_and_ids, lists, kinds_of_memory, kinds_of_tensors_refused, types_that_are_only_stored, streams, every_root, old_reduce,
        shares, in_place, reductions_of_types, what_nccl_adds_up_wrongly, factors, lent_factors_stay, life,
        a_communicator_lasts_as_long_as_its_calls, other_threads_run)})
