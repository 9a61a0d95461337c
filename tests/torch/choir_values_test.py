#!/usr/bin/env python3
# timeout: 900
"""choir_values_test.py - every collective of the backend "choir", in every form, for every type, against values that
are computed here. PyTorch's own tests hardly compare values."""
import functools

import choir_ranks
from choir_ranks import check

choir_ranks.need_choir_torch()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2]
INTS = [torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32, torch.uint64, torch.int64]
COMPLEX = [torch.complex64, torch.complex128]
ONLY_MOVED = [torch.complex32, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]
ALL = [*FLOATS, *INTS, torch.bool, *COMPLEX]
SIZES = [(), (0,), (1,), (7,), (3, 5), (1000,), (70001,)]
OPS = {
    "SUM": torch.add, "PRODUCT": torch.mul, "MIN": torch.minimum, "MAX": torch.maximum,
    "BAND": torch.bitwise_and, "BOR": torch.bitwise_or, "BXOR": torch.bitwise_xor,
}  # fmt: skip


def values(rank, shape, salt=0):
    """0, 1 and 2: their sums and products over four ranks are exact in all types."""
    count = functools.reduce(lambda a, b: a * b, shape, 1)
    flat = (torch.arange(count, dtype=torch.int64) * 7 + rank * 5 + salt) % 9 % 3
    return flat.reshape(shape)


def tensor(rank, shape, dtype, salt=0):
    return values(rank, shape, salt).to(torch.float32).to(dtype)


def bits(t):
    """As bytes: types that torch cannot compare have them too."""
    if t.numel() == 0:
        return b""
    plain = torch.empty(t.numel(), dtype=t.dtype)
    plain.copy_(t.detach().flatten())
    return plain.view(torch.uint8).numpy().tobytes()


def same(got, want, what):
    if got.dtype != want.dtype or got.shape != want.shape or bits(got) != bits(want):
        raise AssertionError(f"{what}: got {got.dtype} {tuple(got.shape)} {got.flatten()[:8]}, "
                             f"expected {want.dtype} {tuple(want.shape)} {want.flatten()[:8]}")  # fmt: skip


def ways(shape, dtype, rank, salt=0):
    """The same values, plain and in two layouts that are not."""
    t = tensor(rank, shape, dtype, salt)
    yield "plain", t.clone()
    if t.dim() == 1 and t.numel() > 1:
        wide = torch.zeros((2 * t.numel(),), dtype=torch.float32).to(dtype)
        view = wide[::2]
        view.copy_(t)
        yield "every other", view
    if t.dim() == 2:
        view = torch.zeros(shape[::-1], dtype=torch.float32).to(dtype).t()
        view.copy_(t)
        yield "transposed", view


def reduced(op, shape, dtype, size, salt=0):
    """What all ranks' tensors come to: in a wide type, in rank order, rounded once."""
    wide = torch.complex128 if dtype.is_complex else torch.float64 if dtype.is_floating_point else torch.int64
    parts = [tensor(r, shape, dtype, salt).to(wide) for r in range(size)]
    if op == "AVG":
        total = functools.reduce(torch.add, parts)
        if wide == torch.int64:
            return torch.div(total, size, rounding_mode="trunc").to(dtype)
        low = torch.complex64 if dtype == torch.complex64 else torch.float32 if wide == torch.float64 else wide
        return (total.to(low) / size).to(dtype) if dtype != torch.float64 else total / size
    if dtype == torch.bool:
        parts = [p.bool() for p in parts]
        logical = {"SUM": torch.logical_or, "PRODUCT": torch.logical_and, "MIN": torch.logical_and,
                   "MAX": torch.logical_or}  # fmt: skip
        return functools.reduce(logical.get(op, OPS[op]), parts)
    return functools.reduce(OPS[op], parts).to(torch.float64 if wide == torch.float64 else wide).to(dtype)


def pairs():
    """Reductions and the types they are for."""
    for op in [*OPS, "AVG"]:
        for dtype in ALL:
            if op in ("BAND", "BOR", "BXOR") and (dtype.is_floating_point or dtype.is_complex):
                continue
            if dtype.is_complex and op not in ("SUM", "AVG"):
                continue
            if op == "AVG" and dtype == torch.bool:
                continue
            yield op, dtype


def finish(work, sync):
    if sync:
        check(work, None, "the work of a call that was not asynchronous")
    else:
        work.wait()
        check(work.is_completed(), True, "completed")


# --- reductions ------------------------------------------------------------------------------------

def all_reduce_types(rank, size):
    for op, dtype in pairs():
        want = reduced(op, (37,), dtype, size)
        for sync in (True, False):
            t = tensor(rank, (37,), dtype)
            finish(dist.all_reduce(t, getattr(dist.ReduceOp, op), async_op=not sync), sync)
            same(t, want, f"all_reduce {op} {dtype} sync {sync}")


def all_reduce_shapes(rank, size):
    for shape in SIZES:
        for dtype in (torch.float32, torch.bfloat16, torch.int64):
            for way, t in ways(shape, dtype, rank):
                dist.all_reduce(t)
                same(t, reduced("SUM", shape, dtype, size), f"all_reduce {shape} {way}")


def reduce_to_each(rank, size):
    for root in range(size):
        for op, dtype in pairs():
            t = tensor(rank, (13,), dtype, root)
            dist.reduce(t, root, getattr(dist.ReduceOp, op))
            want = reduced(op, (13,), dtype, size, root) if rank == root else tensor(rank, (13,), dtype, root)
            same(t, want, f"reduce {op} {dtype} root {root}")
        for shape in SIZES:
            for way, t in ways(shape, torch.float32, rank):
                dist.reduce(t, root)
                want = reduced("SUM", shape, torch.float32, size) if rank == root else tensor(rank, shape, torch.float32)
                same(t, want, f"reduce {shape} {way} root {root}")


def scaled_sum(rank, size):
    for dtype in (torch.float32, torch.float64):
        t = tensor(rank, (11,), dtype)
        dist.all_reduce(t, dist._make_nccl_premul_sum(0.5 + rank))
        same(t, sum((0.5 + r) * tensor(r, (11,), dtype) for r in range(size)), "premul-sum")


def all_reduce_coalesced(rank, size):
    def parts():
        return [tensor(rank, shape, torch.float32, i) for i, shape in enumerate(SIZES)]

    want = [reduced("SUM", shape, torch.float32, size, i) for i, shape in enumerate(SIZES)]
    ts = parts()
    dist.all_reduce_coalesced(ts)
    for t, w in zip(ts, want):
        same(t, w, "all_reduce_coalesced")
    ts = parts()
    with dist._coalescing_manager():
        for t in ts:
            dist.all_reduce(t)
    for t, w in zip(ts, want):
        same(t, w, "coalesced by the manager")
    mixed = [tensor(rank, (5,), torch.float32), tensor(rank, (5,), torch.int64)]
    work = dist.group.WORLD.allreduce_coalesced(mixed)
    work.wait()
    same(mixed[0], reduced("SUM", (5,), torch.float32, size), "coalesced, mixed")
    same(mixed[1], reduced("SUM", (5,), torch.int64, size), "coalesced, mixed")
    choir_ranks.backend_of().allreduce_coalesced([], dist.AllreduceCoalescedOptions()).wait()


def sparse_all_reduce(rank, size):
    for dense in ((), (3,)):
        for dtype in (torch.float32, torch.float64, torch.int64):
            def part(r):
                where = torch.tensor([[0, r, r + 1], [1, 2, r]])
                vals = values(r, (3, *dense)).to(dtype) + 1
                return torch.sparse_coo_tensor(where, vals, (size + 2, max(size, 4), *dense))

            want = functools.reduce(torch.add, [part(r).to_dense() for r in range(size)])
            for sync in (True, False):
                t = part(rank)
                finish(dist.all_reduce(t, async_op=not sync), sync)
                same(t.to_dense(), want, f"sparse {dense} {dtype}")
                check(t.is_coalesced(), True, "coalesced")
    nothing = torch.sparse_coo_tensor(torch.zeros((1, 0), dtype=torch.int64), torch.zeros(0), (4,))
    dist.all_reduce(nothing)
    same(nothing.to_dense(), torch.zeros(4), "sparse without entries")


def reduce_scatter(rank, size):
    for op, dtype in pairs():
        if dtype.is_complex and op == "AVG":
            continue  # torch's front end sends it on as pairs of reals, as any
        ins = [tensor(rank, (9,), dtype, j) for j in range(size)]
        out = torch.zeros(9).to(dtype)
        dist.reduce_scatter(out, ins, getattr(dist.ReduceOp, op))
        want = reduced(op, (9,), dtype, size, rank)
        same(out, want, f"reduce_scatter {op} {dtype}")
        for sync in (True, False):
            out = torch.zeros(9).to(dtype)
            whole = torch.cat([t.view(torch.uint8) for t in ins]).view(dtype)
            finish(dist.reduce_scatter_tensor(out, whole, getattr(dist.ReduceOp, op), async_op=not sync), sync)
            same(out, want, f"reduce_scatter_tensor {op} {dtype}")
    # Rank j gets j + 1 elements; and none of them plain.
    ins = [tensor(rank, (2 * (j + 1),), torch.float32, j)[::2] for j in range(size)]
    out = torch.zeros(2 * (rank + 1))[::2]
    dist.reduce_scatter(out, ins)
    want = sum(tensor(r, (2 * (rank + 1),), torch.float32, rank)[::2] for r in range(size))
    same(out.contiguous(), want, "reduce_scatter, uneven")


# --- moving ----------------------------------------------------------------------------------------

def broadcast_from_each(rank, size):
    for root in range(size):
        for dtype in [*ALL, *ONLY_MOVED]:
            t = tensor(rank, (17,), dtype)
            dist.broadcast(t, root)
            same(t, tensor(root, (17,), dtype), f"broadcast {dtype} from {root}")
        for shape in SIZES:
            for way, t in ways(shape, torch.int16, rank):
                finish(dist.broadcast(t, root, async_op=True), False)
                same(t, tensor(root, shape, torch.int16), f"broadcast {shape} {way} from {root}")


def all_gather_forms(rank, size):
    for dtype in [*ALL, *ONLY_MOVED]:
        outs = [torch.zeros(5).to(dtype) for _ in range(size)]
        dist.all_gather(outs, tensor(rank, (5,), dtype))
        for r in range(size):
            same(outs[r], tensor(r, (5,), dtype), f"all_gather {dtype}")
    for shape in SIZES:
        for way, t in ways(shape, torch.float32, rank):
            outs = [torch.zeros(shape) for _ in range(size)]
            finish(dist.all_gather(outs, t, async_op=True), False)
            for r in range(size):
                same(outs[r], tensor(r, shape, torch.float32), f"all_gather {shape} {way}")
    outs = [torch.zeros(r + 1) for r in range(size)]
    dist.all_gather(outs, tensor(rank, (rank + 1,), torch.float32))
    for r in range(size):
        same(outs[r], tensor(r, (r + 1,), torch.float32), "all_gather, uneven")


def all_gather_into(rank, size):
    want = torch.stack([tensor(r, (3, 4), torch.float32) for r in range(size)])
    for shape in ((size * 3, 4), (size, 3, 4)):
        for sync in (True, False):
            out = torch.zeros(shape)
            finish(dist.all_gather_into_tensor(out, tensor(rank, (3, 4), torch.float32), async_op=not sync), sync)
            same(out, want.reshape(shape), f"all_gather_into_tensor {shape}")
    outs = [torch.zeros(size * 2), torch.zeros(size * 5, dtype=torch.int64)]
    ins = [tensor(rank, (2,), torch.float32), tensor(rank, (5,), torch.int64)]
    dist.group.WORLD.allgather_into_tensor_coalesced(outs, ins).wait()
    for out, t in zip(outs, ins):
        same(out, torch.cat([tensor(r, tuple(t.shape), t.dtype) for r in range(size)]), "coalesced")
    with dist._coalescing_manager():
        for out, t in zip(outs, ins):
            dist.all_gather_into_tensor(out.zero_(), t)
    for out, t in zip(outs, ins):
        same(out, torch.cat([tensor(r, tuple(t.shape), t.dtype) for r in range(size)]), "coalesced by the manager")
    lists = [[torch.zeros(2), torch.zeros(3, 2)] for _ in range(size)]
    dist.all_gather_coalesced(lists, [tensor(rank, (2,), torch.float32), tensor(rank, (3, 2), torch.float32)])
    for r in range(size):
        same(lists[r][0], tensor(r, (2,), torch.float32), "all_gather_coalesced")
        same(lists[r][1], tensor(r, (3, 2), torch.float32), "all_gather_coalesced")


def reduce_scatter_coalesced(rank, size):
    outs = [torch.zeros(2), torch.zeros(3)]
    ins = [tensor(rank, (2 * size,), torch.float32), tensor(rank, (3 * size,), torch.float32)]
    want = [reduced("SUM", (k * size,), torch.float32, size).chunk(size)[rank] for k in (2, 3)]
    dist.group.WORLD.reduce_scatter_tensor_coalesced(outs, ins).wait()
    for out, w in zip(outs, want):
        same(out, w, "reduce_scatter_tensor_coalesced")
    with dist._coalescing_manager():
        for out, t in zip(outs, ins):
            dist.reduce_scatter_tensor(out.zero_(), t)
    for out, w in zip(outs, want):
        same(out, w, "coalesced by the manager")
    mixed = [torch.zeros(2), torch.zeros(3, dtype=torch.int32)]
    dist.group.WORLD.reduce_scatter_tensor_coalesced(mixed, [ins[0], ins[1].int()]).wait()
    same(mixed[1], want[1].int(), "coalesced, mixed")


def gather_and_scatter(rank, size):
    for root in range(size):
        for dtype in [*ALL, *ONLY_MOVED]:
            outs = [torch.zeros(4).to(dtype) for _ in range(size)] if rank == root else None
            dist.gather(tensor(rank, (4,), dtype), outs, root)
            if rank == root:
                for r in range(size):
                    same(outs[r], tensor(r, (4,), dtype), f"gather {dtype}")
            out = torch.zeros(4).to(dtype)
            ins = [tensor(root, (4,), dtype, j) for j in range(size)] if rank == root else None
            dist.scatter(out, ins, root)
            same(out, tensor(root, (4,), dtype, rank), f"scatter {dtype}")
        for shape in SIZES:
            for way, t in ways(shape, torch.float64, rank):
                outs = [torch.zeros_like(t) for _ in range(size)] if rank == root else None
                work = dist.gather(t, outs, root, async_op=True)
                finish(work, False)
                for r in range(size if rank == root else 0):
                    same(outs[r], tensor(r, shape, torch.float64), f"gather {shape} {way}")
                ins = [tensor(root, shape, torch.float64, j) for j in range(size)] if rank == root else None
                finish(dist.scatter(t, ins, root, async_op=True), False)
                same(t, tensor(root, shape, torch.float64, rank), f"scatter {shape} {way}")
        outs = [torch.zeros(r) for r in range(size)] if rank == root else None
        dist.gather(tensor(rank, (rank,), torch.float32), outs, root)
        for r in range(size if rank == root else 0):
            same(outs[r], tensor(r, (r,), torch.float32), "gather, uneven")


def all_to_all_forms(rank, size):
    def piece(source, target):
        """What one rank has for another; the lengths differ."""
        return tensor(source, ((source + 1) * (target + 2) % 5, 3), torch.float32, target)

    for dtype in [*ALL, *ONLY_MOVED]:
        t = tensor(rank, (2 * size,), dtype)
        out = torch.zeros(2 * size).to(dtype)
        dist.all_to_all_single(out, t)
        want = torch.cat([tensor(r, (2 * size,), dtype).view(torch.uint8).chunk(size)[rank] for r in range(size)])
        same(out, want.view(dtype), f"all_to_all_single {dtype}")
    ins, wants = [piece(rank, r) for r in range(size)], [piece(r, rank) for r in range(size)]
    for sync in (True, False):
        out = torch.full((sum(len(w) for w in wants), 3), 9.0)
        finish(dist.all_to_all_single(out, torch.cat(ins), [len(w) for w in wants], [len(t) for t in ins],
                                      async_op=not sync), sync)  # fmt: skip
        same(out, torch.cat(wants), "all_to_all_single, uneven")
        outs = [torch.full_like(w, 9.0) for w in wants]
        finish(dist.all_to_all(outs, ins, async_op=not sync), sync)
        for out, want in zip(outs, wants):
            same(out, want, "all_to_all, uneven")
    strided = [torch.zeros(2 * size, 2).t()[0][:size].clone() for _ in range(size)]
    dist.all_to_all(strided, [tensor(rank, (2 * size,), torch.float32, r)[::2] for r in range(size)])
    for r in range(size):
        same(strided[r], tensor(r, (2 * size,), torch.float32, rank)[::2].contiguous(), "all_to_all, strided input")


def expanded_inputs(rank, size):
    one = tensor(rank, (1,), torch.float32).expand(6)
    out = torch.zeros(6 * size)
    dist.all_gather_into_tensor(out, one)
    same(out, torch.cat([tensor(r, (1,), torch.float32).expand(6) for r in range(size)]), "an expanded input")
    out = one if rank == 0 else torch.zeros(6)
    dist.broadcast(out, 0)
    same(out, tensor(0, (1,), torch.float32).expand(6), "an expanded input of a broadcast")
    negated, outs = torch.full((3,), complex(1, rank + 1)).conj().imag, [torch.zeros(3) for _ in range(size)]
    dist.all_gather(outs, negated)
    same(torch.stack(outs)[:, 0], torch.arange(-1.0, -size - 1, -1), "an input that is negated by a mark")
    steps, out = torch.arange(7.0).as_strided((4, 4), (1, 1)), torch.zeros(4 * size, 4)
    dist.all_gather_into_tensor(out, steps)
    same(out[:4], steps.contiguous(), "an input whose rows overlap")
    choir_ranks.raises(RuntimeError, dist.all_reduce, one, has="share memory")


def objects(rank, size):
    got = [None] * size
    dist.all_gather_object(got, {"rank": rank, "text": "x" * (rank * 1000)})
    check(got, [{"rank": r, "text": "x" * (r * 1000)} for r in range(size)], "all_gather_object")
    things = [f"from {rank}", rank]
    dist.broadcast_object_list(things, src=size - 1)
    check(things, [f"from {size - 1}", size - 1], "broadcast_object_list")
    out = [None]
    dist.scatter_object_list(out, [f"to {r}" for r in range(size)] if rank == 0 else None, src=0)
    check(out, [f"to {rank}"], "scatter_object_list")


FUNCTIONS = [
    all_reduce_types, all_reduce_shapes, reduce_to_each, scaled_sum, all_reduce_coalesced, sparse_all_reduce,
    reduce_scatter, broadcast_from_each, all_gather_forms, all_gather_into, reduce_scatter_coalesced,
    gather_and_scatter, all_to_all_forms, expanded_inputs, objects,
]  # fmt: skip

if __name__ == "__main__":
    choir_ranks.main(FUNCTIONS, choir_ranks.usually([2, 4], [2, 3, 4]))
