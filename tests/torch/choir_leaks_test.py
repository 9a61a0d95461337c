#!/usr/bin/env python3
# timeout: 600
"""choir_leaks_test.py - calls of every kind through torch leave no descriptor, no reference, no memory behind."""
import collections
import contextlib
import gc
import os
import pathlib
import sys
import time

import choir_ranks
from choir_ranks import check

choir_ranks.need_choir_torch()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

CALLS = choir_ranks.usually(5_000, 100_000)
ROUND = 100
MORE_KIB = 4096


# The library makes one for each thread that sleeps in a group beside another one, when that happens first: here the caller's
# and the group's own. They stay with the group.
SEAT, MORE_SEATS = "anon_inode:[eventpoll]", 2
# Threads that complete futures are made when they are needed, and so many are kept.
COMPLETER, MOST_COMPLETERS = "choir-futures", 4


def descriptors():
    """What they are, without that which lists them."""
    paths = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
    return collections.Counter(os.readlink(path) for path in paths if os.path.lexists(path))


def resident_kib():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def refused(call):
    try:
        call()
    except RuntimeError:
        return
    raise AssertionError("it was not refused")


def messages(t, got, rank):
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, t, 1 - rank), dist.P2POp(dist.irecv, got, 1 - rank)])
    for work in works:
        work.wait()


def kinds(t, got, rank):
    """(share of the calls, one of them)"""
    parts, mixed = [torch.zeros(64) for _ in range(2)], [t, torch.ones(3, dtype=torch.int64)]
    sparse, shared = torch.sparse_coo_tensor([[rank]], [1.0], (2,)), torch.ones(1).expand(4)
    rows = t.view(8, 8).t()
    return [
        (0.3, lambda: dist.all_reduce(t, dist.ReduceOp.MAX)),
        (0.2, lambda: dist.all_reduce(t, dist.ReduceOp.MAX, async_op=True).wait()),
        (0.1, lambda: dist.all_reduce(t, dist.ReduceOp.MAX, async_op=True)),
        (0.1, lambda: dist.all_reduce(t, dist.ReduceOp.MAX, async_op=True).get_future().wait()),
        (0.05, lambda: dist.all_reduce(rows, dist.ReduceOp.MAX, async_op=True).get_future().then(lambda f: f.value()).wait()),
        (0.05, lambda: dist.all_gather(parts, t, async_op=True).get_future_result().wait()),
        (0.05, lambda: messages(t, got, rank)),
        (0.05, lambda: dist.group.WORLD.allreduce_coalesced(mixed).wait()),
        (0.02, lambda: dist.all_reduce(sparse.clone(), async_op=True).wait()),
        (0.04, lambda: refused(lambda: dist.all_reduce(shared))),
        (0.02, lambda: refused(lambda: dist.batch_isend_irecv([dist.P2POp(dist.irecv, shared, 1 - rank)]))),
        (0.02, lambda: dist.barrier()),
    ]  # fmt: skip


def threads():
    """How many, without those that complete futures; and of these."""
    names = collections.Counter()
    for path in pathlib.Path("/proc/self/task").glob("*/comm"):
        with contextlib.suppress(OSError):  # it has just ended
            names[path.read_text().strip()] += 1
    completers = names.pop(COMPLETER, 0)
    return sum(names.values()), completers


def count(tensors):
    dist.group.WORLD._wait_for_pending_works()
    dist.barrier()
    gc.collect()
    until = time.monotonic() + 10
    while threads()[1] > MOST_COMPLETERS and time.monotonic() < until:
        time.sleep(0.01)  # it is about to end
    others, completers = threads()
    check(completers <= MOST_COMPLETERS, True, f"few threads that complete futures: {completers}")
    return {"references": [sys.getrefcount(t) for t in tensors], "uses": [t._use_count() for t in tensors], "threads": others}


def leaks(rank, size):
    t, got = torch.ones(64), torch.zeros(64)
    calls = kinds(t, got, rank)

    def run(number):
        for _ in range(number // ROUND):  # so that few are under way at once
            for share, call in calls:
                for _ in range(int(ROUND * share)):
                    call()

    run(1000)  # what is made once
    before, opened, kib = count([t, got]), descriptors(), resident_kib()
    run(CALLS)
    after, more = count([t, got]), resident_kib() - kib
    print(f"rank {rank}: {CALLS} calls, {more} KiB more")
    check(after, before, "what is left")
    left = descriptors() - opened
    seats = left.pop(SEAT, 0)
    check((left, seats <= MORE_SEATS), ({}, True), f"descriptors that are left, and few seats ({seats})")
    check(more < MORE_KIB, True, f"{more} KiB more, less than {MORE_KIB}")


if __name__ == "__main__":
    choir_ranks.main([leaks], [2])
