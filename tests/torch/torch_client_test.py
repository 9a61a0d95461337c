#!/usr/bin/env python3
"""torch_client_test.py - PyTorch's TCPStore client on our server: every command, waits, limits, many at once."""
# timeout: 90
import sys
from datetime import timedelta

import torch_tests
from torch_tests import SLOWNESS, Thread, check, raises

torch_tests.need_torch()

import torch.distributed as dist  # noqa: E402 # pylint: disable=wrong-import-position

AMPLE = timedelta(seconds=20 * SLOWNESS)


def client(address, timeout=AMPLE, **more):
    return dist.TCPStore(address[0], address[1], is_master=False, timeout=timeout, **more)


def every_command(address):
    s = client(address)
    s.set("k", "v")
    check(s.get("k"), b"v")
    check([s.add("n", 5), s.add("n", -7), s.add("n", 0)], [5, -2, -2])
    check(s.get("n"), b"-2")
    check(s.compare_set("c", "", "x"), b"x")
    check(s.compare_set("c", "y", "z"), b"x")
    check(s.compare_set("c", "x", ""), b"")
    check(s.compare_set("c", "", "w"), b"w")  # an empty value equals an empty expectation
    check(s.compare_set("d", "x", "y"), b"x")  # missing: what was expected, nothing stored
    check([s.check(["k"]), s.check(["d"]), s.check(["k", "d"]), s.check([])], [True, False, False, True])
    s.wait(["k", "n"])
    s.wait([])
    check(s.num_keys(), 3)
    check([s.delete_key("k"), s.delete_key("k")], [True, False])
    s.append("k", "w")
    s.append("k", "")
    s.append("k", "ww")
    check(s.get("k"), b"www")
    s.multi_set(["a", "b", "e"], ["1", "22", ""])
    check(s.multi_get(["a", "b", "e", "a"]), [b"1", b"22", b"", b"1"])
    check(s.multi_get([]), [])
    s.queue_push("q", "x")
    s.queue_push("q", "")
    check([s.queue_len("q"), s.check(["q"])], [2, True])
    check([s.queue_pop("q"), s.queue_pop("q", False), s.queue_len("q")], [b"x", b"", 0])
    raises(dist.QueueEmptyError, s.queue_pop, "q", False, has="queue is empty")
    check(sorted(s.list_keys()), ["a", "b", "c", "e", "k", "n"])
    s.barrier("x", 1, AMPLE)
    check(s.get("x"), b"1")


def bytes_of_any_kind(address):
    s = client(address)
    s.set("", "empty key")
    check(s.get(""), b"empty key")
    value = bytes(range(256))
    s.set("bytes", value)
    check(s.get("bytes"), value)
    s.set("sch\u00f6n", "utf-8")
    check(client(address).get("sch\u00f6n"), b"utf-8")


def times_out(address):
    s = client(address)
    short = timedelta(milliseconds=50)
    raises(dist.DistStoreError, s.wait, ["never", "ever"], short, has="wait timeout after 50ms, keys: /never, /ever")
    raises(dist.DistStoreError, s.barrier, "gate", 2, short, has="barrier timeout after 50ms")
    t = client(address)
    t.set_timeout(short)
    raises(dist.DistStoreError, t.get, "never", has="wait timeout")
    raises(dist.DistStoreError, t.queue_pop, "never-a-queue", has="wait timeout")
    t.set_timeout(AMPLE)
    s.set("k", "the connections are as good as before")
    t.wait(["k"])
    check(t.get("k"), b"the connections are as good as before")
    s.barrier("gate", 2, AMPLE)  # the one that gave up stays counted


def waits_end(address):
    ways = {
        "set": lambda s, k: s.set(k, "v"),
        "add": lambda s, k: s.add(k, 1),
        "append": lambda s, k: s.append(k, "v"),
        "compare_set": lambda s, k: s.compare_set(k, "", "v"),
        "multi_set": lambda s, k: s.multi_set([k], ["v"]),
        "push": lambda s, k: s.queue_push(k, "v"),
        "barrier": lambda s, k: s.barrier(k, 1, AMPLE),
    }
    writer = client(address)
    for name, write in ways.items():
        waiter = Thread(client(address).wait, [f"late/{name}"])
        write(writer, f"late/{name}")
        waiter.done()


def closed_for_no_number(address):
    s, other = client(address), client(address)
    s.set("text", "no number")
    raises(dist.DistNetworkError, s.add, "text", 1)
    check(other.get("text"), b"no number")


def limits(address):
    value = b"v" * (8 << 20)
    s = client(address)
    s.set("k" * 8191, value)  # and a "/"
    check(s.get("k" * 8191) == value, True, "8 MiB came back the same")
    s.append("k" * 8191, "more")
    check(len(s.get("k" * 8191)), (8 << 20) + 4)
    for key, value in (("k" * 8192, "v"), ("k", value + b"v")):
        closed = client(address)
        raises(dist.DistNetworkError, lambda c=closed, k=key, v=value: (c.set(k, v), c.num_keys()))
    keys = [str(i) for i in range(131072)]
    s.multi_set(keys, keys)
    check(s.check(keys), True)
    check(s.multi_get(keys) == [k.encode() for k in keys], True, "131072 values")


def many_at_once(address):
    """16 clients: each pops what it can, adds, meets the others at a barrier and sees what they set."""
    def work(rank):
        s = client(address)
        for i in range(20):
            s.add("count", 1)
            s.append("log", "x")
            s.queue_push("jobs", f"{rank}.{i}")
        done = [s.queue_pop("jobs") for _ in range(20)]
        s.set(f"rank/{rank}", "here")
        s.barrier("all", 16, AMPLE)
        check(s.check([f"rank/{r}" for r in range(16)]), True, "what was set before the barrier")
        return done

    jobs = sorted(job for t in [Thread(work, r) for r in range(16)] for job in t.done())
    check(jobs, sorted(f"{r}.{i}".encode() for r in range(16) for i in range(20)), "each job once")
    s = client(address)
    check([s.add("count", 0), len(s.get("log")), s.queue_len("jobs")], [320, 320, 0])


def workers_are_counted(address):
    """What the constructor does with world_size: ADD to the raw key "init/", which nobody lists."""
    s = [client(address, world_size=2, wait_for_workers=True) for _ in range(2)]
    check(s[0].num_keys(), 1)
    check(s[0].list_keys(), [])
    check(s[0].clone().num_keys(), 1)


CASES = [every_command, bytes_of_any_kind, times_out, waits_end, closed_for_no_number, limits, many_at_once,
         workers_are_counted]

for case in CASES:
    with torch_tests.our_server() as where:
        torch_tests.run_all([case], where)
sys.exit(0)
