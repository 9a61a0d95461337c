#!/usr/bin/env python3
"""torch_server_test.py - our client on PyTorch's two servers, libuv and the older one: every call, waits, threads.

Beside it PyTorch's own client on the same server, so that both see the same keys.
"""
# timeout: 120
import sys
import time
from datetime import timedelta

import torch_tests
from torch_tests import SLOWNESS, Choir, ChoirError, Thread, check, raises

torch_tests.need_torch()

import torch.distributed as dist  # noqa: E402 # pylint: disable=wrong-import-position

AMPLE = timedelta(seconds=20 * SLOWNESS)


def fails(status, call, *args, has=""):
    text = raises(ChoirError, call, *args, has=has)
    check(text.split(":")[0], status, "the status")


def every_call(choir, torch, uv):
    choir.set("k", "v")
    check(choir.get("k"), b"v")
    check(torch.get("k"), b"v")
    torch.set("t", "from torch")
    check(choir.get("t"), b"from torch")
    check([choir.add("n", 5), choir.add("n", -7), torch.add("n", 0)], [5, -2, -2])
    check(choir.compare_set("c", "", "x"), b"x")
    check(choir.compare_set("c", "y", "z"), b"x")
    check(choir.compare_set("c", "x", ""), b"")
    check(choir.compare_set("d", "x", "y"), b"x")
    check([choir.check(["k"]), choir.check(["d"]), choir.check(["k", "d"]), choir.check([])],
          [True, False, False, True])
    choir.wait(["k", "n"])
    choir.wait([])
    check(choir.count(), torch.num_keys())
    check([choir.delete("k"), choir.delete("k")], [True, False])
    choir.append("k", "w")
    choir.append("k", "")
    choir.append("k", "ww")
    check(choir.check(["k"]), True)  # answered after what was sent before it
    check(torch.get("k"), b"www")
    choir.multi_set(["a", "b", "e"], ["1", "22", ""])
    check(choir.multi_get(["a", "b", "e", "a"]), [b"1", b"22", b"", b"1"])
    check(choir.multi_get([]), [])
    check(choir.get("e"), b"")
    check(torch.multi_get(["a", "e"]), [b"1", b""])
    check(choir.list(), sorted(k.encode() for k in torch.list_keys()))
    choir.barrier("x", 1)
    check(torch.get("x"), b"1")
    other = Thread(torch.barrier, "y", 2, AMPLE)
    choir.barrier("y", 2)
    other.done()
    check(choir.get("y"), b"2")
    check("choir-probe" in str(choir.list()), False, "a trace of the probe")


def queues(choir, torch, uv):
    if not uv:
        for call in (lambda: choir.push("q", "x"), lambda: choir.pop("q"), lambda: choir.try_pop("q"),
                     lambda: choir.length("q")):
            fails("CHOIR_ERR_UNSUPPORTED", call, has="does not know queues")
        return
    choir.push("q", "x")
    check(choir.length("q"), 1)  # a push has no reply; this has, after it
    torch.queue_push("q", "y")
    check(torch.queue_len("q"), 2)
    choir.push("q", "")
    check([choir.length("q"), torch.queue_len("q"), choir.check(["q"])], [3, 3, True])
    check([torch.queue_pop("q"), choir.pop("q"), choir.try_pop("q")], [b"x", b"y", b""])
    fails("CHOIR_ERR_QUEUE_EMPTY", choir.try_pop, "q")
    fails("CHOIR_ERR_TIMEOUT", choir.pop, "q", 50)
    waiting = Thread(choir.pop, "q")
    torch.queue_push("q", "late")
    check(waiting.done(), b"late")
    # A served wait must not stay registered: this push may not end the wait for another key.
    other = Thread(choir.wait, ["not yet"])
    torch.queue_push("q", "again")
    time.sleep(0.05)  # gives a false end the time to show; too short only hides it
    check(other.is_alive(), True, "waiting for another key")
    torch.set("not yet", "now")
    other.done()
    check(choir.pop("q"), b"again")
    # A queue that is not empty beside a missing key: libuv counts both as missing.
    choir.push("full", "x")
    both = Thread(choir.wait, ["full", "missing"])
    torch.set("missing", "no more")
    both.done()


def times_out(choir, torch, uv):
    began = time.monotonic()
    fails("CHOIR_ERR_TIMEOUT", choir.get, "never", 50, has="never")
    fails("CHOIR_ERR_TIMEOUT", choir.wait, ["never", "k"], 50)
    fails("CHOIR_ERR_TIMEOUT", choir.multi_get, ["never", "k"], 50)
    fails("CHOIR_ERR_TIMEOUT", choir.barrier, "lonely", 2, 50)
    check(0.2 <= time.monotonic() - began < 5 * SLOWNESS, True, "four time-outs of 50 ms")
    choir.set("k2", "as good as before")
    check(choir.get("k2"), b"as good as before")
    check(choir.add("lonely", 0), 1)


def interrupted(choir, torch, uv):
    waiting = Thread(raises, ChoirError, choir.get, "never")
    choir.interrupt()  # it may wait by now, or be about to: both must end
    check(waiting.done().split(":")[0], "CHOIR_ERR_INTERRUPTED")
    choir.resume()
    choir.set("k3", "v")
    check(choir.get("k3"), b"v")


def waits_hold_nobody_up(choir, torch, uv):
    waits = [Thread(choir.get, f"late/{i}") for i in range(12)]
    waits.append(Thread(choir.multi_get, [f"late/{i}" for i in range(12)]))
    for i in range(12):
        choir.set(f"other/{i}", "x")
        check(choir.check([f"other/{i}"]), True)
        check(choir.add("quick", 1), i + 1)
    ways = [torch.set, lambda k, v: torch.append(k, v), lambda k, v: torch.multi_set([k], [v]),
            lambda k, v: choir.set(k, v), lambda k, v: choir.append(k, v)]
    for i in range(12):
        ways[i % len(ways)](f"late/{i}", f"value {i}")
    for i in range(12):
        check(waits[i].done(), f"value {i}".encode())
    check(waits[12].done(), [f"value {i}".encode() for i in range(12)])


def compare_set_wakes(choir, torch, uv):
    """The older server tells nobody about it; we look from time to time."""
    waiting = Thread(choir.get, "by compare_set")
    time.sleep(0.02)  # the wait may be registered or not: both ways must end
    torch.compare_set("by compare_set", "", "made")
    check(waiting.done(), b"made")
    # libuv ends waits for it although nothing was stored.
    waiting = Thread(choir.get, "not made")
    torch.compare_set("not made", "x", "y")
    torch.set("not made", "now")
    check(waiting.done(), b"now")


def deleted_under_our_hands(choir, torch, uv):
    """GET of a missing key: the older server closes the connection, libuv says that it is empty, which cannot
    be told from a value that is, if the key is back by the time we look again."""
    stop = []

    def flicker():
        while not stop:
            torch.set("flicker", "on")
            torch.delete_key("flicker")

    other = Thread(flicker)
    try:
        for _ in range(60):
            try:
                check(choir.get("flicker", 20) in ((b"on", b"") if uv else (b"on",)), True, "a value or none")
            except ChoirError as e:
                check(e.status in ("CHOIR_ERR_TIMEOUT", "CHOIR_ERR_NETWORK"), True, str(e))
    finally:
        stop.append(True)
        other.done()
    choir.set("after", "all")
    check(choir.get("after"), b"all")


def add_to_no_number(choir, torch, uv):
    choir.set("text", "no number")
    fails("CHOIR_ERR_NETWORK", choir.add, "text", 1, has="not a number")
    check(choir.get("text"), b"no number")


def large(choir, torch, uv):
    value = b"v" * (8 << 20)
    choir.set("k" * 8191, value)
    check(choir.get("k" * 8191) == value, True, "8 MiB came back the same")
    choir.append("k" * 8191, "more")
    check(len(choir.get("k" * 8191)), (8 << 20) + 4)
    fails("CHOIR_ERR_INVALID", choir.set, "k" * 8192, "v")
    fails("CHOIR_ERR_INVALID", choir.set, "k", value + b"v")
    keys = [str(i) for i in range(20000)]
    choir.multi_set(keys, keys)
    check(choir.multi_get(keys) == [k.encode() for k in keys], True, "20000 values")


def barrier_is_a_fence(choir, torch, uv):
    """What was set before a barrier is there after it, though sets have no reply."""
    for i in range(30):
        other = Thread(lambda n=i: (torch.barrier(f"fence/{n}", 2, AMPLE), torch.check([f"before/{n}"]))[1])
        choir.set(f"before/{i}", "x")
        choir.barrier(f"fence/{i}", 2)
        check(other.done(), True, "set before the barrier")


CASES = [every_call, queues, times_out, interrupted, waits_hold_nobody_up, compare_set_wakes, deleted_under_our_hands,
         add_to_no_number, large, barrier_is_a_fence]


def main():
    for uv in (True, False):
        print("libuv server" if uv else "older server", flush=True)
        server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=AMPLE, use_libuv=uv)
        torch = dist.TCPStore("127.0.0.1", server.port, is_master=False, timeout=AMPLE)
        with Choir("127.0.0.1", server.port) as choir:
            torch_tests.run_all(CASES, choir, torch, uv)


main()
sys.exit(0)
