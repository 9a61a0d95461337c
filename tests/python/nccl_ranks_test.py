#!/usr/bin/env python3
"""nccl_ranks_test.py - choir.nccl between processes: lengths and roots are the communicator's; who does not fit, dies or forks."""
# timeout: 120
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import python_sanitized
import python_tests
from python_tests import check, make_comms, raises

python_tests.need_choir()

import numpy as np  # noqa: E402 # pylint: disable=wrong-import-position

import choir  # noqa: E402 # pylint: disable=wrong-import-position
from choir import nccl  # noqa: E402 # pylint: disable=wrong-import-position

spawn = multiprocessing.get_context("spawn")


def start(function, *arguments):
    process = spawn.Process(target=function, args=arguments)
    process.start()
    return process


def end(*processes):
    for p in processes:
        p.join(60)
        check(p.exitcode, 0, f"exit code of {p.name}")


def share(group, value):
    """Rank 0's bytes, on every rank of `choir run`."""
    box = np.frombuffer(value if group.rank == 0 else bytes(128), "u1").astype("i4")
    group.all_reduce(box)
    return box.astype("u1").tobytes()


# --- processes -------------------------------------------------------------------------------------

def by_the_communicator(group):
    """One tensor in each process: PyTorch's module would take the length of the list for the number of ranks."""
    n, rank = group.size, group.rank
    comm = nccl.init_rank(n, share(group, nccl.unique_id() if rank == 0 else b""), rank, timeout=60)
    out = np.zeros(3 * n)
    nccl.all_gather([np.full(3, rank + 1.0)], [out], comms=comm)
    check(out.tolist(), np.repeat(np.arange(n) + 1.0, 3).tolist())
    out = np.zeros(2)
    nccl.reduce_scatter([np.arange(2.0 * n)], [out], comms=[comm])
    check(out.tolist(), [2.0 * rank * n, (2.0 * rank + 1) * n])
    for root in range(n):
        a = np.full(2, float(rank))
        nccl.broadcast([a], root, comms=comm)
        check(a.tolist(), [root, root])
        a = np.full(2, float(rank))
        out = np.zeros(2) if rank == root else None
        nccl.reduce([a], out, root, comms=comm)
        if rank == root:
            check(out.tolist(), [n * (n - 1) / 2] * 2)
        nccl.reduce([a], root=root, comms=comm)
        check(a.tolist(), [n * (n - 1) / 2 if rank == root else rank] * 2)
    raises(nccl.RootError, nccl.broadcast, [a], n, comms=comm)


def two_in_each(group):
    """Every process is two ranks, which threads have made and one thread drives."""
    n, comms = 2 * group.size, [None, None]
    uid = share(group, nccl.unique_id() if group.rank == 0 else b"")

    def join(i):
        comms[i] = nccl.init_rank(n, uid, 2 * group.rank + i, timeout=60)

    threads = [threading.Thread(target=join, args=(i,)) for i in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for _ in range(20):
        a = [np.full(5, 2.0 * group.rank), np.full(5, 2.0 * group.rank + 1)]
        nccl.all_reduce(a, comms=comms)
        check([x.tolist() for x in a], [[n * (n - 1) / 2] * 5] * 2)
    out = [np.zeros(n), np.zeros(n)]
    nccl.all_gather([x[:1] * 0 + c for c, x in zip((2 * group.rank, 2 * group.rank + 1), a)], out, comms=comms)
    check([o.tolist() for o in out], [list(range(n))] * 2)


# --- meeting ---------------------------------------------------------------------------------------

def refused_rank(uid, nranks, rank, says):
    e = raises(choir.InvalidError, nccl.init_rank, nranks, uid, rank, timeout=60, has=says)
    check(isinstance(e, RuntimeError), True)


def ranks_that_do_not_fit():
    for others, own, says in (((3, 1), (2, 0), "3"), ((2, 0), (2, 0), "rank 0")):
        uid = nccl.unique_id()
        process = start(refused_rank, uid, *others, says)
        refused_rank(uid, *own, says)
        end(process)


def make_id(pipe):
    pipe.send(nccl.unique_id())


def maker_is_dead():
    here, there = spawn.Pipe()
    process = start(make_id, there)
    uid = here.recv()
    end(process)
    began = time.monotonic()
    e = raises(ConnectionError, nccl.init_rank, 2, uid, 0, timeout=60, has="process that made this id")
    check(isinstance(e, RuntimeError), True)
    check(time.monotonic() - began < 20, True, "it is told at once")


def join_and_die(uid):
    comm = nccl.init_rank(2, uid, 1, timeout=60)
    nccl.all_reduce([np.ones(1)], comms=comm)
    os.kill(os.getpid(), signal.SIGKILL)


def a_rank_dies():
    uid = nccl.unique_id()
    process = start(join_and_die, uid)
    with nccl.Communicator(2, uid, 0, timeout=60) as comm:
        nccl.all_reduce([np.ones(1)], comms=comm)
        e = raises(choir.DeadRankError, nccl.all_reduce, [np.ones(1)], comms=comm, has="rank 1")
        check((e.rank, isinstance(e, RuntimeError)), (1, True))
    process.join(60)


def ctrl_c():
    """It ends a wait at once: a call of one rank, of two of three, and a rank that waits for others to come."""
    two, three = make_comms(2), make_comms(3)  # who drops a capsule leaves
    for wait in (lambda: nccl.all_reduce([np.ones(1)], comms=two[0]),
                 lambda: nccl.all_reduce([np.ones(1), np.ones(1)], comms=three[:2]),
                 lambda: nccl.init_rank(2, nccl.unique_id(), 0)):
        sent = []

        def send():
            sent.append(time.monotonic())  # pylint: disable=cell-var-from-loop
            os.kill(os.getpid(), signal.SIGINT)

        sender = python_tests.when_asleep(send)
        raises(KeyboardInterrupt, wait)
        took = time.monotonic() - sent[0]
        sender.join()
        check(took < 0.2 * python_tests.SLOWNESS, True, f"{took:.3f} s until it ended")


# --- what is left behind ---------------------------------------------------------------------------

def descriptors():
    return len(os.listdir("/proc/self/fd"))


def churn(uid, count):
    for _ in range(count):
        comm = nccl.init_rank(1, uid, 0)
        nccl.all_reduce([np.ones(3)], comms=comm)
        nccl.all_reduce([np.ones(3), np.ones(3)])


def capsules_are_collected():
    uid = nccl.unique_id()
    churn(uid, 3)
    gc.collect()
    before, threads = descriptors(), len(os.listdir("/proc/self/task"))
    churn(uid, 50)
    gc.collect()
    check((descriptors(), len(os.listdir("/proc/self/task"))), (before, threads), "descriptors, threads")
    box = [nccl.init_rank(1, uid, 0)]
    box.append(box)  # a cycle
    del box
    gc.collect()
    check(descriptors(), before, "descriptors after a cycle")


def calls_leak_nothing():
    a, b, comm = np.ones(4, "f4"), np.ones(4, "f4"), nccl.init_rank(1, nccl.unique_id(), 0)

    def calls(count):
        for _ in range(count):
            nccl.all_reduce([a, b])
            nccl.all_reduce([a], comms=comm)
            try:
                nccl.all_reduce([a, 1])
            except TypeError:
                pass

    def references():
        return [sys.getrefcount(x) for x in (a, b, comm, None)][:3]

    def resident():
        with open("/proc/self/statm", encoding="ascii") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    calls(2000)
    counts, fds, memory = references(), descriptors(), resident()
    calls(1000 if python_tests.SANITIZED else 100000 if os.environ.get("CHOIR_TEST_LONG") else 10000)
    check((references(), descriptors()), (counts, fds), "references, descriptors")
    if not python_tests.SANITIZED:  # which keep for a while what is freed, and report leaks of one byte
        check(resident() - memory < 2 << 20, True, f"memory grew by {resident() - memory} bytes")


EXITS = {
    "open": "comm = nccl.init_rank(1, nccl.unique_id(), 0)",
    "in a module": "import sys; sys.comm = nccl.Communicator(1, nccl.unique_id(), 0)",
    "in a daemon thread's call": """
import threading
uid = nccl.unique_id()
comms = [None, None]
def join(r): comms[r] = nccl.init_rank(2, uid, r)
ts = [threading.Thread(target=join, args=(r,)) for r in range(2)]
[t.start() for t in ts]; [t.join() for t in ts]
stuck = threading.Thread(target=nccl.all_reduce, args=([np.ones(1)],), kwargs={"comms": comms[0]}, daemon=True)
stuck.start()
stuck.join(0.2)
""",
}
# The interpreter ends such a thread where it is, within the call, and what the call had made is left.
LEFT = ("in a daemon thread's call",)


def interpreter_ends():
    for name, code in EXITS.items():
        done = subprocess.run([sys.executable, "-c", f"import numpy as np\nfrom choir import nccl\n{code}\nprint('end')"],
                              env=python_sanitized.without_leaks() if name in LEFT else None,
                              capture_output=True, text=True, timeout=60, check=False)
        check((done.returncode, done.stdout), (0, "end\n"), f"{name}: {done.stderr}")
        check("Traceback" in done.stderr, False, f"{name}: {done.stderr}")


def forks():
    comm = nccl.init_rank(1, nccl.unique_id(), 0)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            raises(choir.ForkedError, nccl.all_reduce, [np.ones(1)], comms=comm)
            raises(choir.ForkedError, nccl.unique_id)
            nccl.all_reduce([np.ones(1), np.ones(1)])  # nothing but memory
            del comm  # the parent's: nothing happens
            gc.collect()
            code = 0
        except AssertionError as e:
            print(e, file=sys.stderr, flush=True)
        finally:
            os._exit(code)
    check(os.waitpid(pid, 0)[1], 0, "the child's end")
    nccl.all_reduce([np.ones(1)], comms=comm)


if __name__ == "__main__":
    python_tests.main({by_the_communicator: (2, 3), two_in_each: 2, ranks_that_do_not_fit: 0, maker_is_dead: 0,
                       a_rank_dies: 0, ctrl_c: 0, capsules_are_collected: 0, calls_leak_nothing: 0, interpreter_ends: 0, forks: 0})
