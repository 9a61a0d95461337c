#!/usr/bin/env python3
"""nccl_async_test.py - choir.nccl's calls that do not wait: handles, what they hold, and who drops them when."""
# timeout: 120
import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
import weakref

import python_sanitized
import python_tests
from python_tests import check, make_comms, raises

python_tests.need_choir()

import numpy as np  # noqa: E402 # pylint: disable=wrong-import-position

import choir  # noqa: E402 # pylint: disable=wrong-import-position
from choir import nccl  # noqa: E402 # pylint: disable=wrong-import-position


def eventually(condition, what):
    """Collected, and given back by the next call."""
    until = time.monotonic() + 30
    while not condition():
        check(time.monotonic() < until, True, f"not within 30 s: {what}")
        nccl.all_reduce([np.ones(1)])
        gc.collect()


def wait_all(works):
    for work in works:
        check(work.wait(30), None)


# Each as one rank: what it is called with, and what the last tensor holds afterwards. One thread is both ranks, so that a call
# that waited would never end.
def calls(comm, rank):
    ones = np.full(2, rank + 1.0)
    yield lambda **more: nccl.all_reduce([ones], comms=comm, **more), ones, [3, 3]
    out = np.zeros(2)
    yield lambda **more: nccl.all_reduce([ones], [out], nccl.MAX, comms=comm, **more), out, [3, 3]
    wide = np.zeros(4)
    yield lambda **more: nccl.all_gather([out], [wide], comms=[comm], **more), wide, [3, 3, 3, 3]
    share = np.zeros(2)
    yield lambda **more: nccl.reduce_scatter([wide], [share], comms=comm, **more), share, [6, 6]
    told = np.full(3, rank, "i4")
    yield lambda **more: nccl.broadcast([told], 1, comms=comm, **more), told, [1, 1, 1]
    total = np.zeros(3, "i4") if rank == 1 else None
    yield (lambda **more: nccl.reduce([told], total, 1, comms=comm, **more), told if total is None else total,
           [1, 1, 1] if total is None else [2, 2, 2])


def every_call():
    comms = make_comms(2)
    for both in zip(calls(comms[0], 0), calls(comms[1], 1)):
        works = [call(async_op=True) for call, _, _ in both]
        check([len(w) for w in works], [1, 1])
        for w in works:
            wait_all(w)
        check([kept.tolist() for _, kept, _ in both], [expected for _, _, expected in both])


def several_in_one_call():
    comms = make_comms(3)
    tensors = [np.full(5, r, "f4") for r in range(3)]
    works = nccl.all_reduce(tensors, comms=comms, async_op=True)
    check([w.operation for w in works], ["allreduce"] * 3)
    wait_all(works)
    check([t.tolist() for t in tensors], [[3.0] * 5] * 3)
    root = np.zeros(5, "f4")
    wait_all(nccl.reduce(tensors, root, 2, comms=comms, async_op=True))
    check(root.tolist(), [9.0] * 5)


def without_comms_it_is_done():
    tensors = [np.ones(3), np.ones(3)]
    check(nccl.all_reduce(tensors, async_op=True), [])
    check(tensors[1].tolist(), [2.0] * 3)
    check(nccl.all_reduce(tensors), None)


def refused_as_ever():
    comms = make_comms(2)
    raises(nccl.RootError, nccl.broadcast, [np.ones(1)], 2, comms=comms[0], async_op=True)
    raises(nccl.OutputCountError, nccl.all_gather, [np.ones(1)], [np.ones(2)] * 2, comms=comms[0], async_op=True)
    raises(nccl.NotATensorError, nccl.all_reduce, [3], comms=comms[0], async_op=True)
    locked = np.ones(1)
    locked.flags.writeable = False
    raises(nccl.ReadOnlyError, nccl.all_reduce, [locked], comms=comms[0], async_op=True)
    a = [np.ones(1), np.ones(1)]
    nccl.all_reduce(a, comms=comms)  # nothing had begun
    check(a[0].tolist(), [2.0])


def failures_are_of_this_module():
    comms = make_comms(2)
    work, = nccl.all_reduce([np.ones(1)], comms=comms[0], async_op=True)
    check(work.test(), False)
    error = raises(choir.TimeoutError, work.wait, 0.01)
    check(isinstance(error, RuntimeError), True)
    check(isinstance(raises(choir.StateError, work.result), RuntimeError), True)
    nccl.Communicator.of(comms[0]).abort()
    error = raises(choir.Error, work.wait, 30)
    check(isinstance(error, RuntimeError) and isinstance(work.exception(), RuntimeError), True, repr(error))


def dropped_handles_hold_on():
    """The memory and the communicator stay until the call is done, whoever has forgotten them."""
    comms = make_comms(2)
    a = np.ones(3)
    alive = weakref.ref(a)
    nccl.all_reduce([a], comms=comms[0], async_op=True)
    del a
    comms[0] = None
    gc.collect()
    check(alive() is not None, True, "memory was given back under a call")
    b = np.ones(3)
    nccl.all_reduce([b], comms=comms[1])
    check(b.tolist(), [2.0] * 3)
    eventually(lambda: alive() is None, "the memory is given back")


def the_last_goes_in_a_callback():
    """Handle, memory and communicator are dropped on the library's own thread, which cannot end them."""
    for _ in range(20):
        comms, seen = make_comms(2), []
        work, = nccl.all_reduce([np.ones(3)], comms=comms[0], async_op=True)
        called = threading.Event()

        def done(it, seen=seen, called=called):
            seen.append(it.exception())
            called.set()

        work.add_done_callback(done)
        del work
        comms[0] = None
        nccl.all_reduce([np.ones(3)], comms=comms[1])
        check(called.wait(30), True)
        check(seen, [None])
        raises(choir.RemoteError, nccl.all_reduce, [np.ones(3)], comms=comms[1], has="has left")


def waiting_with_a_lock_that_a_callback_needs():
    """The wait drops the last reference of the communicator, which cannot end before the callback has."""
    comms, lock, called = make_comms(2), threading.Lock(), threading.Event()
    work, = nccl.all_reduce([np.ones(3)], comms=comms[0], async_op=True)

    def done(_):
        with lock:
            called.set()

    work.add_done_callback(done)
    comms[0] = None
    with lock:
        nccl.all_reduce([np.ones(3)], comms=comms[1])
        work.wait(30)
        del work
    check(called.wait(30), True)


def destroy_waits_until_abort():
    comms = make_comms(2)
    comm = nccl.Communicator.of(comms[0])
    work, = nccl.all_reduce([np.ones(3)], comms=comm, async_op=True)
    thread = threading.Thread(target=comm.destroy)
    thread.start()
    python_tests.when_asleep(comm.abort, thread.native_id)
    thread.join(30)
    check(thread.is_alive(), False, "destroy() is still waiting")
    raises(choir.Error, work.wait, 30)


def an_exception_does_not_wait_for_a_callback():
    """One that does not return keeps the communicator, aborted, until it does."""
    comms, entered, leave, told = make_comms(2), threading.Event(), threading.Event(), []
    comm = nccl.Communicator.of(comms[0])

    def fail():
        try:
            with comm:
                raise ValueError("the program's own")
        except ValueError as error:
            told.append(str(error))

    work, = nccl.all_reduce([np.ones(1)], comms=comm, async_op=True)
    work.add_done_callback(lambda _: (entered.set(), leave.wait()))
    nccl.all_reduce([np.ones(1)], comms=comms[1])
    check(entered.wait(30), True)
    thread = threading.Thread(target=fail)
    thread.start()
    thread.join(30)
    try:
        check(told, ["the program's own"], "told while the callback runs")
        raises(choir.Error, nccl.all_reduce, [np.ones(1)], comms=comm)
    finally:
        leave.set()
    comm.destroy()


def awaited():
    comms = make_comms(2)

    async def rank(r):
        a = np.full(1, r + 1.0)
        work, = nccl.all_reduce([a], comms=comms[r], async_op=True)
        await work
        return a.tolist()

    async def both():
        return await asyncio.gather(rank(0), rank(1))

    check(asyncio.run(both()), [[3.0], [3.0]])


def leak_nothing():
    comms = make_comms(2)
    a, b = np.ones(2), np.ones(2)
    counts = []
    for _ in range(3):
        for _ in range(500):
            nccl.all_reduce([a], comms=comms[0], async_op=True)
            wait_all(nccl.all_reduce([b], comms=comms[1], async_op=True))
        eventually(lambda: sys.getrefcount(a) == sys.getrefcount(b), "all is given back")
        counts.append((sys.getrefcount(a), sys.getrefcount(comms[0])))
    check(counts[1:], counts[:1] * 2)


EXITS = {
    "under way": "work, = nccl.all_reduce([np.ones(1)], comms=comms[0], async_op=True)",
    "forgotten": "nccl.all_reduce([np.ones(1)], comms=comms[0], async_op=True); comms = None",
    "a capsule that outlives its module": (
        "sys.comms = python_tests.make_comms(1); [w.wait() for w in nccl.all_reduce([np.ones(1)], comms=sys.comms, async_op=True)]"),
    "a callback that does not return": (
        "import threading; entered, never = threading.Event(), threading.Lock(); never.acquire(); "
        "work, = nccl.all_reduce([np.ones(1)], comms=comms[0], async_op=True); "
        "work.add_done_callback(lambda _: (entered.set(), never.acquire())); "
        "nccl.all_reduce([np.ones(1)], comms=comms[1]); entered.wait()"),
    "with a callback": "nccl.all_reduce([np.ones(1)], comms=comms[0], async_op=True)[0].add_done_callback(print)",
}


def interpreter_ends():
    for name, code in EXITS.items():
        program = (f"import sys\nsys.path.insert(0, {os.path.dirname(__file__)!r})\nimport numpy as np, python_tests\n"
                   f"from choir import nccl\ncomms = python_tests.make_comms(2)\n{code}\nprint('end')")
        # What a call under way borrows is left to it.
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False,
                              env=python_sanitized.without_leaks())
        check((done.returncode, done.stdout), (0, "end\n"), f"{name}: {done.stderr}")


FORKS = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
import numpy as np, python_tests
from choir import nccl
comms = python_tests.make_comms(2)
nccl.all_reduce([np.ones(1)], comms=comms[0], async_op=True)
began, pid = time.monotonic(), os.fork()
if pid:
    print(os.waitpid(pid, 0)[1], time.monotonic() - began)
    os._exit(0)
"""


def a_child_ends_at_once():
    """An ordinary end of a forked interpreter does not wait for what only the parent can end."""
    done = subprocess.run([sys.executable, "-c", FORKS, os.path.dirname(__file__)], capture_output=True, text=True, timeout=60,
                          check=True, env=python_sanitized.without_leaks())
    code, seconds = done.stdout.split()
    check((code, float(seconds) < 4), ("0", True), done)


LEAVES = """
import sys
import numpy as np
from choir import nccl
comm = nccl.init_rank(2, bytes.fromhex(sys.argv[1]), 0, timeout=60)
nccl.all_reduce([np.ones(1)], comms=comm, async_op=True)
"""


def who_forgets_a_handle_leaves_at_the_end():
    """The interpreter waits for the call, and then the rank leaves, as it would have without async_op."""
    uid = nccl.unique_id()
    with subprocess.Popen([sys.executable, "-c", LEAVES, uid.hex()]) as other:
        comm = nccl.init_rank(2, uid, 1, timeout=60)
        a = np.ones(1)
        nccl.all_reduce([a], comms=comm)
        check(a.tolist(), [2.0])
        check(other.wait(60), 0)
        error = raises(choir.Error, nccl.all_reduce, [a], comms=comm, has="has left")
        check(isinstance(error, choir.DeadRankError), False, repr(error))


if __name__ == "__main__":
    python_tests.main({every_call: 0, several_in_one_call: 0, without_comms_it_is_done: 0, refused_as_ever: 0,
                       failures_are_of_this_module: 0, dropped_handles_hold_on: 0, the_last_goes_in_a_callback: 0,
                       waiting_with_a_lock_that_a_callback_needs: 0, destroy_waits_until_abort: 0,
                       an_exception_does_not_wait_for_a_callback: 0,
                       who_forgets_a_handle_leaves_at_the_end: 0,
                       a_child_ends_at_once: 0, awaited: 0, leak_nothing: 0, interpreter_ends: 0})
