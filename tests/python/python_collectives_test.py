#!/usr/bin/env python3
"""python_collectives_test.py - every operation, done on return and as a work; lists and single buffers; batches; splits."""
# timeout: 120
import asyncio
import threading

import python_tests
from python_tests import check, raises

python_tests.need_choir()

import numpy as np  # noqa: E402 # pylint: disable=wrong-import-position

import choir  # noqa: E402 # pylint: disable=wrong-import-position


def same(got, want, what):
    check(np.asarray(got).tolist(), np.asarray(want).tolist(), what)


def ways(call):
    """The call, done on return, as a work that is waited for, and as one that is asked."""
    yield call(async_op=False)
    yield call(async_op=True).wait(20)
    work = call(async_op=True)
    while not work.test():
        pass
    check((work.done(), work.exception(), work.duration >= 0), (True, None, True))
    yield work.result()


def reductions(group):
    n, r = group.size, group.rank
    for op, want in (("sum", n * (n + 1) / 2), ("avg", (n + 1) / 2), ("max", n), ("min", 1),
                     ("product", np.prod(np.arange(1, n + 1)))):
        for a in ways(lambda op=op, **more: group.all_reduce(np.full(7, r + 1.0), op, **more)):
            same(a, np.full(7, want), op)
    for a in ways(lambda **more: group.all_reduce(np.full(2, r + 1.0), "premul-sum", factor=0.5, **more)):
        same(a, np.full(2, n * (n + 1) / 4), "premul-sum")
    mine = np.arange(5, dtype="i8") + r
    for a in ways(lambda **more: group.all_reduce(np.zeros(5, "i8"), input=mine, **more)):
        same(a, np.arange(5) * n + n * (n - 1) // 2, "with an input")
    same(mine, np.arange(5) + r, "the input is only read")
    for root in range(n):
        for a in ways(lambda root=root, **more: group.reduce(np.full(3, r + 1.0), root, "sum", **more)):
            same(a, np.full(3, n * (n + 1) / 2 if r == root else r + 1.0), "reduce")
    for both in ways(lambda **more: group.all_reduce_coalesced([np.ones(3), np.full(5, 2.0)], **more)):
        same(both[0], np.full(3, n), "coalesced")
        same(both[1], np.full(5, 2 * n), "coalesced")


def movements(group):
    n, r = group.size, group.rank
    for root in range(n):
        for a in ways(lambda root=root, **more: group.broadcast(np.full(4, r), root, **more)):
            same(a, np.full(4, root), "broadcast")
    for outs in ways(lambda **more: group.all_gather([np.zeros(i + 1) for i in range(n)], np.full(r + 1, r * 1.0), **more)):
        for i, a in enumerate(outs):
            same(a, np.full(i + 1, i), "all_gather, uneven")
    for a in ways(lambda **more: group.all_gather(np.zeros((n, 3)), np.full(3, r * 1.0), **more)):
        same(a, [[i] * 3 for i in range(n)], "all_gather into one")
    for outs in ways(lambda **more: group.all_gather_coalesced([[np.zeros(2), np.zeros(1)] for _ in range(n)],
                                                              [np.full(2, r * 1.0), np.full(1, -r * 1.0)], **more)):
        for i, (a, b) in enumerate(outs):
            same(np.concatenate([a, b]), [i, i, -i], "all_gather_coalesced")
    for outs in ways(lambda **more: group.all_gather_coalesced([np.zeros(2 * n), np.zeros(n)],
                                                              [np.full(2, r * 1.0), np.full(1, -r * 1.0)], **more)):
        same(outs[0], [i // 2 for i in range(2 * n)], "all_gather_coalesced into one")
        same(outs[1], [-i for i in range(n)], "all_gather_coalesced into one")
    for root in range(n):
        outs = [np.zeros(2) for _ in range(n)] if r == root else None
        for got in ways(lambda root=root, outs=outs, **more: group.gather(np.full(2, r * 1.0), outs, root, **more)):
            check(got is outs, True)
            if r == root:
                same(outs, [[i, i] for i in range(n)], "gather")
        ins = [np.full(2, 10.0 * i) for i in range(n)] if r == root else None
        for a in ways(lambda root=root, ins=ins, **more: group.scatter(np.zeros(2), ins, root, **more)):
            same(a, np.full(2, 10.0 * r), "scatter")


def exchanges(group):
    n, r = group.size, group.rank
    total = n * (n - 1) / 2
    for a in ways(lambda **more: group.reduce_scatter(np.zeros(2), [np.full(2, 1.0 * i + r) for i in range(n)], **more)):
        same(a, np.full(2, r * n + total), "reduce_scatter")
    for a in ways(lambda **more: group.reduce_scatter(np.zeros(2), np.repeat(np.arange(n) + r * 1.0, 2), "max", **more)):
        same(a, np.full(2, r + n - 1), "reduce_scatter from one")
    for outs in ways(lambda **more: group.reduce_scatter_coalesced([np.zeros(1), np.zeros(2)],
                                                                  [np.arange(n) * 1.0, np.ones(2 * n)], **more)):
        same(outs[0], [r * n], "reduce_scatter_coalesced")
        same(outs[1], [n, n], "reduce_scatter_coalesced")
    for outs in ways(lambda **more: group.all_to_all([np.zeros(i + 1) for i in range(n)],
                                                     [np.full(r + 1, 10.0 * r + i) for i in range(n)], **more)):
        for i, a in enumerate(outs):
            same(a, np.full(i + 1, 10 * i + r), "all_to_all, uneven")
    for a in ways(lambda **more: group.all_to_all(np.zeros(2 * n), np.repeat(10.0 * r + np.arange(n), 2), **more)):
        same(a, np.repeat(10 * np.arange(n) + r, 2), "all_to_all of equal parts")
    splits = np.arange(1, n + 1)
    for a in ways(lambda **more: group.all_to_all(np.zeros(n * (r + 1)), np.repeat(10.0 * r + np.arange(n), splits),
                                                  [r + 1] * n, splits, **more)):
        same(a, np.repeat(10 * np.arange(n) + r, r + 1), "all_to_all of unequal parts")
    for nothing in ways(group.barrier):
        check(nothing, None)
    group.monitored_barrier(timeout=20)


def messages(group):
    n, r = group.size, group.rank
    if r == 0:
        for i in range(1, n):
            group.send(np.full(3, i * 1.0), i, tag=5)
        sources = sorted(group.recv_any(np.zeros(2), tag=6) for _ in range(1, n))
        check(sources, list(range(1, n)))
        got = [(work.wait(), work.source) for work in [group.recv_any(np.zeros(1), 7, async_op=True) for _ in range(1, n)]]
        check(sorted(got), [(i, i) for i in range(1, n)])
    else:
        same(group.recv(np.zeros(3), 0, tag=5), np.full(3, r), "recv")
        group.send(np.zeros(2), 0, tag=6)
        work = group.send(np.zeros(1), 0, 7, async_op=True)
        work.wait()
        raises(choir.StateError, lambda: work.source)
    for async_op in (False, True):
        got = np.zeros(4)
        with group.batch(async_op=async_op) as batch:
            check(group.send(np.full(4, r * 1.0), (r + 1) % n), None, "what a call in a batch gives")
            group.recv(got, (r - 1) % n)
        if async_op:
            batch.work.wait()
        else:
            check(batch.work, None)
        same(got, np.full(4, (r - 1) % n), "a ring in a batch")
    raises(choir.StateError, batch.__enter__, has="serves once")


def sends_and_receives(group):
    n, r = group.size, group.rank
    to, source = (r + 1) % n, (r - 1) % n
    mine, got = np.full(3, r * 1.0), np.zeros(3)
    check(group.sendrecv(mine, to, got, source) is got, True, "what it gives")
    same(got, np.full(3, source), "a ring")
    work = group.sendrecv(np.full(2, r), source, np.zeros(2, "i8"), to, tag=3, timeout=20, async_op=True)
    same(work.wait(), np.full(2, to), "the other way, as a work")
    with group.batch():
        group.sendrecv(mine, to, got, source)
        group.sendrecv(mine, source, back := np.zeros(3), to, 1)
    same(np.concatenate((got, back)), np.repeat([source, to], 3), "both ways in a batch")
    raises(choir.InvalidError, group.sendrecv, mine, to, mine, source, has="overlap")
    raises(choir.InvalidError, group.sendrecv, mine, n, got, source, has="to")


def splits(group):
    n, r = group.size, group.rank
    mine = [i for i in range(n) if i % 2 == r % 2]
    child = group.split(mine, name=f"half {r % 2}", description="for a test", timeout=7)
    check((child.rank, child.size, child.timeout), (r // 2, len(mine), 7.0))
    check((child.name, child.description), (f"half {r % 2}", "for a test"))
    check([child.global_rank(i) for i in range(child.size)], mine)
    same(child.all_reduce(np.ones(2)), np.full(2, len(mine)), "in a split group")
    check(repr(child), f"<choir.Group 'half {r % 2}', rank {r // 2} of {len(mine)}>")
    check(group.split([0] if r == 0 else []) is None, r != 0)
    child.close()
    child.close()
    check((child.closed, group.closed), (True, False))
    raises(choir.StateError, child.barrier, has="closed")


def works(group):
    n = group.size
    same(asyncio.run(all_at_once(group)), [[n] * 3] * 10, "awaited")
    told, rung = [], threading.Event()
    work = group.all_reduce(np.ones(4), async_op=True)
    work.add_done_callback(lambda w: (told.append(w), rung.set()))
    check(rung.wait(20), True, "the callback has come")
    check(told, [work])
    work.add_done_callback(told.append)
    check(told, [work, work], "at once if it is done")
    work.add_done_callback(lambda w: told.append(group.all_reduce(np.ones(1))[0]))  # which waits, in this thread
    check(told[-1], float(group.size), "what a callback has reduced")
    raises(TypeError, work.add_done_callback, 3)
    a = np.ones(1000)
    for _ in range(100):
        group.all_reduce(a[:1], async_op=True)  # nobody holds the handle
    del a
    group.wait_pending(20)
    check(group.collective_sequence >= 110, True)
    if group.rank == 0:
        slow = group.recv(np.zeros(1), 1, async_op=True)
        e = raises(choir.TimeoutError, slow.wait, 0.05, has="Operation timed out!")
        check((e.loses, isinstance(e, TimeoutError)), ("work", True))
        raises(choir.StateError, slow.result, has="not done yet")
        raises(choir.StateError, slow.exception)
        raises(choir.StateError, lambda: slow.duration)
        check((slow.test(), slow.operation), (False, "recv"))
        group.send(np.zeros(1), 1)
        check(slow.wait(20).tolist(), [3])
    elif group.rank == 1:
        group.recv(np.zeros(1), 0)
        group.send(np.full(1, 3.0), 0)


async def all_at_once(group):
    return await asyncio.gather(*[awaited(group) for _ in range(10)])


async def awaited(group):
    return (await group.all_reduce(np.ones(3), async_op=True)).tolist()


def about(group):
    n, r = group.size, group.rank
    check((group.local_rank, group.local_size, group.name), (r, n, "world"))
    check((group.timeout, group.error), (1800.0, None))
    group.timeout = 12.5
    check(group.timeout, 12.5)
    group.timeout = float("inf")
    check(group.timeout, float("inf"))
    raises(ValueError, setattr, group, "timeout", 0)
    check([group.alive(i) for i in range(n)], [True] * n)
    check([group.peer(i)["rank"] for i in range(n)], list(range(n)))
    check(group.peer(r)["version"], choir.__version__)
    raises(choir.InvalidError, group.peer, n)
    raises(choir.InvalidError, group.global_rank, n)
    store = group.store
    store.set(f"rank {r}", str(r))
    check(store.multi_get([f"rank {i}" for i in range(n)]), [str(i).encode() for i in range(n)])
    raises(choir.TimeoutError, group.recv, np.zeros(1), (r + 1) % n, timeout=0.02) if n > 1 else None


def fakes():
    group = choir.fake_group(3, 8)
    check((group.rank, group.size), (3, 8))
    group.all_reduce(np.ones(3))
    group = choir.fake_group(0, 2, error_on_collective=True)
    raises(choir.Error, group.all_reduce, np.ones(3))


if __name__ == "__main__":
    python_tests.main({reductions: (1, 2, 3), movements: (1, 3), exchanges: (1, 3), messages: (2, 4), sends_and_receives: (1, 3), splits: (2, 3),
                       works: (2, 3), about: (1, 3), fakes: 0})
