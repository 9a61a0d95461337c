#!/usr/bin/env python3
# timeout: 900
"""choir_work_test.py - the backend "choir" beside its collectives: messages, works and futures, batches, groups, time,
failures, and what torch's tools ask of a backend."""
import threading
import time
from datetime import timedelta

import choir_ranks
from choir_ranks import SLOWNESS, check, raises

choir_ranks.need_choir_torch()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

AMPLE = timedelta(seconds=30 * SLOWNESS)


cpu_backend = choir_ranks.backend_of


def apart(ranks, timeout=AMPLE):
    """A group of its own, for what a group does not survive; all ranks call this."""
    return dist.new_group(ranks, timeout=timeout)


# --- messages --------------------------------------------------------------------------------------

def messages(rank, size):
    right, left = (rank + 1) % size, (rank - 1) % size
    for dtype in (torch.float32, torch.bfloat16, torch.bool, torch.complex64, torch.float8_e5m2, torch.int64):
        for count in (0, 1, 1000, 300000):
            t = (torch.arange(count) % 3 + rank).to(torch.float32).to(dtype)
            got = torch.zeros(count).to(dtype)
            sending = dist.isend(t, right, tag=5)
            dist.recv(got, left, tag=5)
            sending.wait()
            want = (torch.arange(count) % 3 + left).to(torch.float32).to(dtype)
            if count > 0:
                check(torch.equal(got.view(torch.uint8), want.view(torch.uint8)), True, f"{dtype} {count}")
    if rank == 0:
        dist.send(torch.tensor([1.0]), 1)
        dist.send(torch.tensor([2.0]), 1)
    if rank == 1:
        for want in (1.0, 2.0):
            t = torch.zeros(1)
            dist.recv(t, 0)
            check(t.item(), want, "messages keep their order")


def messages_to_oneself(rank, size):
    t, got = torch.tensor([7.0 + rank]), torch.zeros(1)
    works = [dist.irecv(got, rank), dist.isend(t, rank)]
    for work in works:
        work.wait()
    check(got.item(), 7.0 + rank, "to oneself")


def strided_messages(rank, size):
    grid = torch.zeros(4, 6)
    if rank == 0:
        dist.send(torch.arange(24.0).reshape(6, 4).t(), 1)
    if rank == 1:
        dist.recv(grid, 0)
        check(grid.tolist(), torch.arange(24.0).reshape(6, 4).t().tolist(), "a transposed message")


def from_anybody(rank, size):
    if rank != 0:
        dist.send(torch.tensor([float(rank)]), 0)
        return
    seen = set()
    for _ in range(size - 1):
        t = torch.zeros(1)
        source = dist.recv(t)
        check(t.item(), float(source), "what came with its source")
        seen.add(source)
    check(seen, set(range(1, size)), "all of them")


def source_of_a_receive(rank, size):
    if rank == 1:
        dist.send(torch.tensor([3.0]), 0, tag=9)
    if rank == 0:
        t = torch.zeros(1)
        work = dist.irecv(t, tag=9)
        work.wait()
        check(work._source_rank(), 1, "the source of any source")
    work = dist.all_reduce(torch.ones(1), async_op=True)
    work.wait()
    raises(RuntimeError, work._source_rank, has="receive")


def several_messages_at_once(rank, size):
    right, left = (rank + 1) % size, (rank - 1) % size
    outs, ins = [torch.full((50,), float(rank * 10 + i)) for i in range(3)], [torch.zeros(50) for _ in range(3)]
    ops = [dist.P2POp(dist.irecv, t, left) for t in ins] + [dist.P2POp(dist.isend, t, right) for t in outs]
    works = dist.batch_isend_irecv(ops)
    check(len(works), 6 if choir_ranks.is_python() else 1, "works of a batch")
    for work in works:
        work.wait()
    for i in range(3):
        check(ins[i].tolist(), [float(left * 10 + i)] * 50, "batched message")


def a_refused_message_ends_its_batch(rank, size):
    """The error comes out of the batch, and what comes later is no part of it. What came before is sent."""
    right, left = (rank + 1) % size, (rank - 1) % size
    shared, never = torch.ones(1).expand(4), torch.zeros(1)
    ops = [dist.P2POp(dist.isend, torch.full((4,), float(rank)), right, tag=3), dist.P2POp(dist.irecv, shared, left, tag=3),
           dist.P2POp(dist.isend, never, right, tag=4)]  # fmt: skip
    for _ in range(2):
        raises(RuntimeError, lambda: dist.batch_isend_irecv(ops), has="share memory")
        t, got = torch.full((4,), float(rank)), torch.zeros(4)
        dist.all_reduce(t)
        check(t.tolist(), [float(sum(range(size)))] * 4, "a sum after a refused batch")
        dist.recv(got, left, tag=3)
        check(got.tolist(), [float(left)] * 4, "what was sent before the refusal")
    dist.send(torch.ones(1), right, tag=4)
    dist.recv(never, left, tag=4)
    check(never.item(), 1.0, "the first that came with the last tag")


@choir_ranks.compiled_only
def a_refused_collective_ends_its_batch(rank, size):
    group, cpu = apart(list(range(size))), torch.device("cpu")
    mixed = [torch.ones(1), torch.ones(1, dtype=torch.int64), torch.ones(2).to(torch.float8_e5m2fnuz)]
    for bad in ([torch.ones(1), torch.ones(1)], [torch.sparse_coo_tensor([[0]], [1.0], (2,))]):
        t = torch.ones(3)
        group._start_coalescing(cpu)
        group.allreduce([t])
        group.allreduce(bad)
        group.allreduce_coalesced(mixed)
        raises(RuntimeError, lambda: group._end_coalescing(cpu), has="allreduce")
        after = torch.ones(2)
        dist.all_reduce(after, group=group)
        check(after.tolist(), [float(size)] * 2, "a sum after a refused batch")
        check(t.tolist(), [float(size)] * 3, "the sum before the refusal")


# --- works and futures -------------------------------------------------------------------------------

def futures_carry_the_tensors(rank, size):
    t = torch.full((4,), float(rank))
    future = dist.all_reduce(t, async_op=True).get_future()
    value = future.wait()
    check(isinstance(value, list) and len(value) == 1 and value[0] is not None, True, "a list of one")
    check(value[0].tolist(), [float(sum(range(size)))] * 4, "the value")
    check(value[0].data_ptr(), t.data_ptr(), "the very tensor")
    outs = [torch.zeros(1) for _ in range(size)]
    value = dist.all_gather(outs, torch.tensor([float(rank)]), async_op=True).get_future().wait()
    check([v.item() for v in value], [float(r) for r in range(size)], "all of the outputs")
    check(dist.barrier(async_op=True).get_future().wait(), [], "a barrier's value")


def callbacks_run_and_may_go_on(rank, size):
    """As DDP's hooks do: a callback issues the next operation."""
    done = threading.Event()
    t = torch.ones(1000)

    def second(future):
        check(future.value()[0][0].item(), float(size * size), "second")
        done.set()

    def first(future):
        check(future.value()[0][0].item(), float(size), "first")
        dist.all_reduce(t, async_op=True).get_future().then(second)
        return future.value()[0]

    chained = dist.all_reduce(t, async_op=True).get_future().then(first)
    chained.wait()
    check(done.wait(AMPLE.total_seconds()), True, "the callback of the second")


def callbacks_may_wait_for_what_they_issue(rank, size):
    """As PowerSGD's hook does: by the future, which another callback completes."""
    t = torch.ones(100)

    def deeper(future):
        dist.all_reduce(t, async_op=True).get_future().wait()
        return dist.all_reduce(t, async_op=True).get_future().then(lambda f: f.value()[0]).wait()

    def first(future):
        dist.all_reduce(t, async_op=True).get_future().wait()
        return dist.all_reduce(t, async_op=True).get_future().then(deeper).wait()

    got = dist.all_reduce(t, async_op=True).get_future().then(first).wait()
    check(got[0].item(), float(size**5), "five sums, one after another")


def callbacks_may_wait_for_what_was_there_before(rank, size):
    """For a future, and for what comes of one to which they add a callback."""
    t, others = torch.ones(4), torch.ones(4)
    held = apart(list(range(size)))
    waits = [lambda future: future.wait()[0].sum().item(), lambda future: future.then(lambda f: f.value()[0].sum().item()).wait()]
    for i, wait in enumerate(waits):
        if rank == 1:
            dist.barrier(held)  # both are made before either is done
        first, second = (dist.all_reduce(x, async_op=True).get_future() for x in (t, others))
        result = first.then(lambda future: wait(second))
        if rank != 1:
            dist.barrier(held)
        check(result.wait(), 4.0 * size ** (i + 1), "what the other one's future came to")


def callbacks_come_in_order(rank, size):
    """They may issue operations, of which the order must be the same on all ranks; one that takes longer than others as well."""
    right, left = (rank + 1) % size, (rank - 1) % size
    inner, held = apart(list(range(size))), apart(list(range(size)))

    def issue(i):
        if i % size == rank:
            time.sleep(0.01)
        t = torch.full((i + 1,), float(i))
        dist.all_reduce(t, group=inner)
        return t[0].item()

    futures = [dist.irecv(torch.zeros(1), left).get_future() for _ in range(20)]
    chained = [future.then(lambda f, i=i: issue(i)) for i, future in enumerate(futures)]
    for future in futures:  # all callbacks are there before the first is done: of others no order is promised
        dist.barrier(held)
        dist.send(torch.ones(1), right)
        future.wait()
    check([future.wait() for future in chained], [float(i * size) for i in range(20)], "what the callbacks reduced")


def completion_is_seen_without_waiting(rank, size):
    t = torch.ones(8)
    work = dist.all_reduce(t, async_op=True)
    until = time.monotonic() + AMPLE.total_seconds()
    while not work.is_completed() and time.monotonic() < until:
        pass
    check(work.is_completed(), True, "completed")
    check(work.is_success(), True, "success")
    check(work.exception(), None, "exception")
    check([v.tolist() for v in work.result()], [[float(size)] * 8], "result")
    check(work._get_duration() >= 0, True, "duration")
    check(work.get_future_result().wait(), 0, "the future's result")


def who_asks_whether_it_is_done_does_not_hang(rank, size):
    """The thread that completes the future drops the input, for which it needs the interpreter's lock: this one has it."""
    for _ in range(200):
        whole = torch.empty(1000 * size)
        work = dist.all_gather_into_tensor(whole, torch.ones(1000), async_op=True)
        future = work.get_future()
        while not work.is_completed():
            pass
        check(future.wait()[0].sum().item(), 1000.0 * size, "what was gathered")


def many_under_way(rank, size):
    ts = [torch.full((i + 1,), float(rank + i)) for i in range(50)]
    works = [dist.all_reduce(t, async_op=True) for t in ts]
    for work in reversed(works):
        work.wait()
    for i, t in enumerate(ts):
        check(t.tolist(), [float(sum(range(size)) + i * size)] * (i + 1), "one of many")


def dropped_works_go_on(rank, size):
    ts = [torch.ones(5000) for _ in range(20)]
    for t in ts:
        dist.all_reduce(t, async_op=True)
    dist.barrier()
    for t in ts:
        check(t.sum().item(), 5000.0 * size, "nobody waited")


def tensors_live_as_long_as_the_work(rank, size):
    works = []
    for _ in range(20):
        works.append(dist.all_gather([torch.zeros(30000) for _ in range(size)], torch.ones(30000), async_op=True))
    for work in works:
        work.wait()
        check([v.sum().item() for v in work.result()], [30000.0] * size, "outputs that nobody else holds")


def tensors_live_as_long_as_what_nobody_holds(rank, size):
    """A receive whose work and tensor are dropped writes into memory that is nobody else's yet."""
    group = apart(list(range(size)))
    for _ in range(5):
        if rank == 0:
            dist.irecv(torch.zeros(1 << 14), 1, group=group)
            others = [torch.full((1 << 14,), 7.0) for _ in range(4)]
        dist.barrier()
        if rank == 1:
            dist.send(torch.ones(1 << 14), 0, group=group)
        dist.barrier()
        if rank == 0:
            check([bool((t == 7).all()) for t in others], [True] * 4, "memory that was allocated since")
    t = torch.sparse_coo_tensor([[rank]], [1.0], (size,))
    dist.all_reduce(t, async_op=True)
    dist.barrier()
    if not choir_ranks.is_python():
        dist.group.WORLD._wait_for_pending_works()
    check(t.to_dense().tolist(), [1.0] * size, "a sparse sum that nobody waited for")


def tensors_may_get_other_memory(rank, size):
    """What they had when the call was made is written to, and is there as long."""
    meanwhile = apart(list(range(size)))
    changes = [lambda t: setattr(t, "data", torch.zeros(1)), lambda t: t.set_()]
    for change in changes:
        ts = [torch.full((1 << 20,), float(rank + 1)) for _ in range(3)]
        whole = torch.zeros(size << 20)
        views = [ts[0].view(-1), ts[1].view(-1)]
        if rank != 0:
            dist.barrier(meanwhile)
        works = [dist.all_reduce(ts[0], async_op=True), dist.all_reduce(ts[1], async_op=True),
                 dist.all_gather_into_tensor(whole, ts[2], async_op=True)]  # fmt: skip
        if rank == 0:
            for t in (*ts, whole):
                change(t)
            del views[1]
            others = [torch.full((1 << 20,), 7.0) for _ in range(8)]
            dist.barrier(meanwhile)
        for work in works:
            work.wait()
        check(views[0].unique().tolist(), [size * (size + 1) / 2], "the sum in the memory that the tensor had")
        if rank == 0:
            check([t.unique().tolist() for t in others], [[7.0]] * 8, "memory that was allocated since")


@choir_ranks.compiled_only
def who_completes_a_future_himself(rank, size):
    """Then it cannot be completed again, which is logged and hurts nobody."""
    group, t = apart(list(range(size))), torch.zeros(1)
    if rank == 0:
        work = dist.irecv(t, 1, group=group)
        work.get_future().set_result([torch.tensor([5.0])])
    dist.barrier()
    if rank == 1:
        dist.send(torch.tensor([3.0]), 0, group=group)
    if rank == 0:
        work.wait()
        check(work.get_future().wait()[0].item(), 5.0, "its value")
        group._wait_for_pending_works()
        check(t.item(), 3.0, "what was received")


# --- groups ------------------------------------------------------------------------------------------

def subgroups(rank, size):
    for members in ([0, 1], list(range(size)), [size - 1], list(range(1, size))):
        group = apart(members)
        if rank in members:
            t = torch.tensor([float(rank)])
            dist.all_reduce(t, group=group)
            check(t.item(), float(sum(members)), f"sum over {members}")
            dist.broadcast(t, src=members[-1], group=group)
            dist.destroy_process_group(group)


def splitting(rank, size):
    half = [r for r in range(size) if r % 2 == rank % 2]
    parent = dist.group.WORLD
    child = parent.split_group(half, timeout=AMPLE)
    t = torch.tensor([float(rank)])
    child.allreduce([t]).wait()
    check(t.item(), float(sum(half)), "sum over a split group")
    check(child.size(), len(half), "its size")


def sequence_numbers(rank, size):
    backend = cpu_backend()
    before = backend._get_sequence_number_for_group()
    work = dist.all_reduce(torch.ones(1), async_op=True)
    work.wait()
    dist.all_reduce(torch.ones(1))
    check(backend._get_sequence_number_for_group(), before + 2, "sequence number")


@choir_ranks.compiled_only
def names_and_options(rank, size):
    check(cpu_backend().name(), "choir", "name")
    check(dist.get_backend(), "choir", "torch's name")
    check(cpu_backend().supports_coalescing, True, "coalescing")
    check(cpu_backend().supports_splitting, True, "splitting")


def monitored_barrier(rank, size):
    dist.group.WORLD.monitored_barrier(timeout=AMPLE)
    cpu_backend().monitored_barrier(timeout=AMPLE)


@choir_ranks.compiled_only
def a_hook_may_raise(rank, size):
    group = apart(list(range(size)))
    seen = []

    def hook(info):
        seen.append(info)
        raise ValueError("of a hook")

    group._register_on_completion_hook(hook)
    for i in range(1, 4):
        t = torch.ones(3)
        dist.all_reduce(t, group=group, async_op=True).wait()
        check(t.tolist(), [float(size)] * 3, "a sum whose hook raises")
        group._wait_for_pending_works()
        check(len(seen), i, "calls of the hook")


@choir_ranks.compiled_only
def a_group_ends_after_its_hooks(rank, size):
    """Also after one that takes longer than what a group without hooks is given for its end."""
    group = apart(list(range(size)))
    seen = []
    check(group._has_hooks(), False, "hooks before there is one")
    group._register_on_completion_hook(lambda info: (time.sleep(1.5), seen.append(info.seq)))
    check(group._has_hooks(), True, "hooks")
    raises(RuntimeError, lambda: group._register_on_completion_hook(lambda info: None), has="hook already")
    dist.all_reduce(torch.ones(1), group=group)
    dist.destroy_process_group(group)
    check(len(seen), 1, "calls of the hook, when the group has ended")


@choir_ranks.compiled_only
def who_may_not_coalesce_is_not_coalescing(rank, size):
    """A second thread is refused, and its next operation is done, not put off."""
    group = apart(list(range(size)))
    cpu = torch.device("cpu")
    got = []

    def other():
        raises(RuntimeError, lambda: group._start_coalescing(cpu), has="another thread")
        t = torch.ones(2)
        dist.all_reduce(t, group=group)
        got.append(t.tolist())

    group._start_coalescing(cpu)
    raises(RuntimeError, lambda: group._start_coalescing(cpu), has="this thread")
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    group._end_coalescing(cpu).wait()
    check(got, [[float(size)] * 2], "what the other thread reduced")


@choir_ranks.compiled_only
def profiler_sees_operations(rank, size):
    if size > 3:
        return  # it takes seconds to start
    with torch.autograd.profiler.profile() as profile:
        dist.all_reduce(torch.ones(3))
        dist.all_reduce(torch.ones(3), async_op=True).wait()
        dist.broadcast(torch.ones(3), 0, async_op=True).wait()
    names = [event.name for event in profile.function_events]
    check(names.count("choir:all_reduce"), 2, "all_reduce events")
    check(names.count("choir:broadcast"), 1, "broadcast events")


@choir_ranks.compiled_only
def flight_record(rank, size):
    import json
    import pickle

    import choir.torch

    dist.all_reduce(torch.ones(3))
    choir.torch.dump_flight_record(f"flight_{rank}")
    with open(f"flight_{rank}", "rb") as f:
        record = pickle.load(f)
    check("entries" in record and len(record["entries"]) > 0, True, "entries in the pickle")
    choir.torch.dump_flight_record(f"flight_{rank}.json", json=True)
    with open(f"flight_{rank}.json") as f:
        check("entries" in json.load(f), True, "entries in the JSON")


def functional_collectives(rank, size):
    import torch.distributed._functional_collectives as functional

    t = torch.full((4, 2), float(rank))
    got = functional.wait_tensor(functional.all_reduce(t, "sum", dist.group.WORLD))
    check(got.tolist(), torch.full((4, 2), float(sum(range(size)))).tolist(), "functional all_reduce")
    got = functional.wait_tensor(functional.all_gather_tensor(t, 0, dist.group.WORLD))
    check(got[:, 0].tolist(), [float(r) for r in range(size) for _ in range(4)], "functional all_gather")
    whole = torch.arange(float(2 * size))
    got = functional.wait_tensor(functional.reduce_scatter_tensor(whole, "sum", 0, dist.group.WORLD))
    check(got.tolist(), [2.0 * rank * size, (2.0 * rank + 1) * size], "functional reduce_scatter")
    got = functional.wait_tensor(functional.all_to_all_single(whole, None, None, dist.group.WORLD))
    check(got.tolist(), [v for _ in range(size) for v in (2.0 * rank, 2.0 * rank + 1)], "functional all_to_all")


# --- what goes wrong ---------------------------------------------------------------------------------

def bad_arguments_change_nothing(rank, size):
    beyond = dist.BroadcastOptions()
    beyond.rootRank = size
    rows = [
        (lambda: dist.group.WORLD.allreduce([torch.ones(1), torch.ones(1)]), RuntimeError, "single-element"),
        (lambda: dist.group.WORLD.broadcast([torch.ones(1)], beyond), RuntimeError, "invalid root rank"),
        (lambda: dist.all_reduce(torch.ones(2), dist.ReduceOp.BAND), RuntimeError, ""),
        (lambda: dist.all_reduce(torch.ones(2, dtype=torch.bool), dist.ReduceOp.AVG), RuntimeError, "bool"),
        (lambda: dist.all_reduce(torch.ones(2).to(torch.float8_e5m2fnuz)), RuntimeError, "Invalid scalar type"),
        (lambda: dist.all_gather([torch.ones(1)] * (size + 1), torch.ones(1)), RuntimeError, "expected length"),
        (lambda: dist.all_gather_into_tensor(torch.ones(size + 1), torch.ones(1)), RuntimeError, "invalid tensor size"),
        (lambda: dist.all_to_all_single(torch.ones(size), torch.ones(size), [size], [size]), RuntimeError, "splits"),
        (lambda: dist.all_to_all_single(torch.ones(size), torch.ones(size), [2] * size, [1] * size), RuntimeError, "Split sizes"),
        (lambda: dist.send(torch.ones(1), (rank + 1) % size, tag=-1), RuntimeError, "nonnegative"),
        (lambda: dist.broadcast(torch.sparse_coo_tensor(torch.zeros(1, 1), torch.ones(1), (2,)), 0), RuntimeError, "parse"),
    ]  # fmt: skip
    for call, kind, text in rows:
        raises(kind, call, has=text)
    t = torch.ones(3)
    dist.all_reduce(t)
    check(t.tolist(), [float(size)] * 3, "the group is as before")


def a_receive_times_out_alone(rank, size):
    group = apart(list(range(size)), timeout=timedelta(milliseconds=300))
    if rank == 0:
        began = time.monotonic()
        text = raises(dist.DistBackendError, lambda: dist.recv(torch.zeros(1), 1, group=group), has="Timed out waiting 300ms")
        check(time.monotonic() - began < 5 * SLOWNESS, True, f"soon: {text}")
    dist.barrier()


def a_wait_has_a_time_of_its_own(rank, size):
    group = apart(list(range(size)))
    if rank == 0:
        work = dist.all_reduce(torch.ones(1), group=group, async_op=True)
        raises(RuntimeError, lambda: work.wait(timedelta(milliseconds=100)), has="Operation timed out!")
        check(work.is_completed(), False, "the work goes on")
    dist.barrier()
    if rank != 0:
        dist.all_reduce(torch.ones(1), group=group)
    else:
        work.wait()


def a_coalesced_call_has_a_time_of_its_own(rank, size):
    opts = dist.AllreduceCoalescedOptions()
    opts.timeout, opts.asyncOp = timedelta(milliseconds=300), False
    for tensors in ([torch.ones(1), torch.ones(2)], [torch.ones(1), torch.ones(2, dtype=torch.int64)]):
        group = apart(list(range(size)))
        if rank == 0:
            raises(dist.DistBackendError, lambda: group.allreduce_coalesced(tensors, opts), has="Timed out waiting 300ms")
        dist.barrier()


def outputs_that_cannot_be_written(rank, size):
    """Refused in the same words everywhere; one dimension of length 1 shares nothing."""
    shared, one = torch.ones(1).expand(size), torch.ones(1)
    rows = [
        lambda bad: dist.all_reduce(bad), lambda bad: dist.group.WORLD.allreduce_coalesced([bad]),
        lambda bad: dist.reduce(bad, rank), lambda bad: dist.broadcast(bad, (rank + 1) % size),
        lambda bad: dist.all_gather([bad] * size, torch.ones(size)), lambda bad: dist.all_gather_into_tensor(bad, one),
        lambda bad: dist.gather(torch.ones(size), [bad] * size, rank), lambda bad: dist.scatter(bad, [torch.ones(size)] * size, rank),
        lambda bad: dist.reduce_scatter(bad, [torch.ones(size)] * size), lambda bad: dist.all_to_all_single(bad, torch.ones(size)),
        lambda bad: dist.all_to_all([bad] * size, [torch.ones(size)] * size), lambda bad: dist.recv(bad, (rank + 1) % size),
    ]  # fmt: skip
    for call in rows:
        raises(RuntimeError, lambda: call(shared), has="share memory")
    t = torch.ones(5).as_strided((1, 5), (0, 1))
    dist.all_reduce(t)
    check(t.tolist(), [[float(size)] * 5], "a sum in one row")


def who_is_late_is_named(rank, size):
    group = apart(list(range(size)), timeout=timedelta(milliseconds=500))
    if rank != size - 1:
        raises(dist.DistBackendError, lambda: dist.all_reduce(torch.ones(1), group=group), has=f"{size - 1}")
        raises(dist.DistBackendError, lambda: dist.all_reduce(torch.ones(1), group=group), has="")
    dist.barrier()


def different_calls_are_told(rank, size):
    group = apart(list(range(size)))
    call = (lambda: dist.all_reduce(torch.ones(4), group=group)) if rank == 0 else (
        lambda: dist.all_reduce(torch.ones(5), group=group))
    raises(dist.DistBackendError, call, has="allreduce")


def futures_carry_errors(rank, size):
    group = apart(list(range(size)), timeout=timedelta(milliseconds=300))
    if rank == 0:
        future = dist.all_reduce(torch.ones(1), group=group, async_op=True).get_future()
        raises(dist.DistBackendError, future.wait, has="Timed out waiting 300ms")
    dist.barrier()


def abort_ends_what_is_pending(rank, size):
    group = apart(list(range(size)))
    if rank == 0:
        work = dist.all_reduce(torch.ones(1), group=group, async_op=True)
        cpu_backend(group).abort()
        raises(dist.DistBackendError, work.wait, has="abort")
    dist.barrier()
    raises(dist.DistBackendError, lambda: dist.all_reduce(torch.ones(1), group=group), has="abort")


def set_timeout_counts(rank, size):
    group = apart(list(range(size)))
    cpu_backend(group).set_timeout(timedelta(milliseconds=200))
    if rank == 0:
        raises(dist.DistBackendError, lambda: dist.recv(torch.zeros(1), 1, group=group), has="Timed out waiting 200ms")
    dist.barrier()


def unmatched_receive_is_no_reason_to_hang(rank, size):
    group = apart(list(range(size)))
    if rank == 0:
        dist.irecv(torch.zeros(1), 1, group=group)
        began = time.monotonic()
        dist.destroy_process_group(group)
        check(time.monotonic() - began < 10 * SLOWNESS, True, "destroyed soon")


FUNCTIONS = [
    messages, messages_to_oneself, strided_messages, from_anybody, source_of_a_receive, several_messages_at_once,
    a_refused_message_ends_its_batch, a_refused_collective_ends_its_batch, futures_carry_the_tensors, callbacks_run_and_may_go_on, callbacks_may_wait_for_what_they_issue,
    callbacks_may_wait_for_what_was_there_before, callbacks_come_in_order,
    completion_is_seen_without_waiting, who_asks_whether_it_is_done_does_not_hang, many_under_way, dropped_works_go_on, tensors_live_as_long_as_the_work,
    tensors_live_as_long_as_what_nobody_holds, tensors_may_get_other_memory, who_completes_a_future_himself, subgroups, splitting, sequence_numbers, names_and_options,
    monitored_barrier, a_hook_may_raise, a_group_ends_after_its_hooks, who_may_not_coalesce_is_not_coalescing, profiler_sees_operations,
    flight_record, functional_collectives, bad_arguments_change_nothing, a_receive_times_out_alone,
    a_wait_has_a_time_of_its_own,
    a_coalesced_call_has_a_time_of_its_own, outputs_that_cannot_be_written, who_is_late_is_named, different_calls_are_told, futures_carry_errors,
    abort_ends_what_is_pending, set_timeout_counts, unmatched_receive_is_no_reason_to_hang,
]  # fmt: skip

if __name__ == "__main__":
    choir_ranks.main(FUNCTIONS, choir_ranks.usually([3], [2, 3, 4]))
