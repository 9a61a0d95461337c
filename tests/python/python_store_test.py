#!/usr/bin/env python3
"""python_store_test.py - stores: every call, on every kind; servers; time-outs; interrupts."""
# timeout: 60
import os
import threading

import python_tests
from python_tests import check, raises

python_tests.need_choir()

import choir  # noqa: E402 # pylint: disable=wrong-import-position


def every_call(s):
    s.set("k", "v")
    check((s.get("k"), s.get(b"k", timeout=5)), (b"v", b"v"))
    check([s.add("n", 5), s.add("n", -7), s.add("n", 0), s.get("n")], [5, -2, -2, b"-2"])
    check([s.compare_set("c", "", "x"), s.compare_set("c", "y", "z"), s.compare_set("c", "x", b"\0")], [b"x", b"x", b"\0"])
    s.append("k", bytearray(b"w"))
    check(s.get("k"), b"vw")
    check((s.check(["k", "n"]), s.check(["k", "no"]), s.check([])), (True, False, True))
    s.wait(["k", "n"], timeout=5)
    s.multi_set(["a", "b"], ["1", b""])
    check(s.multi_get(["b", "a"]), [b"", b"1"])
    check((s.delete("a"), s.delete("a")), (True, False))
    s.queue_push("q", "x")
    s.queue_push("q", "y")
    check((s.queue_length("q"), s.queue_pop("q"), s.queue_try_pop("q"), s.queue_length("q")), (2, b"x", b"y", 0))
    raises(choir.QueueEmptyError, s.queue_try_pop, "q")
    check(sorted(s.keys()), [b"b", b"c", b"k", b"n"])
    check(s.count() >= 4, True)
    s.barrier("gate", 1)
    below = s.prefix("deep").prefix("er")
    below.set("k", "below")
    check((s.get("deep/er/k"), below.unprefixed().get("k"), s.clone().get("k")), (b"below", b"vw", b"vw"))
    s.set("schön", "grün")
    check(s.get("schön".encode()), "grün".encode())


def limits(s):
    e = raises(choir.TimeoutError, s.get, "never", timeout=0.02)
    check((e.name, isinstance(e, TimeoutError)), ("CHOIR_ERR_TIMEOUT", True))
    s.timeout = 0.02
    check(s.timeout, 0.02)
    raises(choir.TimeoutError, s.wait, ["never"])
    s.timeout = float("inf")
    check(s.timeout, float("inf"))
    raises(ValueError, s.get, "k", timeout=-1)
    raises(TypeError, s.set, 3, "v")
    raises(TypeError, s.set, "k")
    raises(TypeError, s.wait, "a text is no list")
    raises(ValueError, s.multi_set, ["a"], [])
    python_tests.when_asleep(s.interrupt)
    raises(choir.InterruptedError, s.get, "never")
    s.resume()
    s.close()
    s.close()
    raises(choir.StateError, s.get, "k", has="closed")


def kinds():
    with choir.serve_store(torch_bind="127.0.0.1:0") as server:
        for url in ("hash://", f"file://{os.getcwd()}/a.store", f"tcp://{server.address}",
                    f"tcp://{server.torch_address}?protocol=torch"):
            with choir.open_store(url, timeout=20) as s:
                every_call(s)
            limits(choir.open_store(url, timeout=20))
    check(server.address, None)
    raises(choir.InvalidError, choir.open_store, "nonsense://")
    raises(choir.TimeoutError, choir.open_store, "tcp://127.0.0.1:9", timeout=0.05)


def closing_ends_waits():
    s = choir.open_store("hash://")
    seen = []

    def wait():
        try:
            s.get("never")
        except choir.Error as e:
            seen.append(e.name)

    thread = threading.Thread(target=wait)
    thread.start()
    python_tests.when_asleep(s.close, thread.native_id)
    thread.join(20)
    check(seen, ["CHOIR_ERR_INTERRUPTED"])


def joining_through_one():
    s = choir.open_store("hash://")
    groups = {}

    def join(rank):
        group = groups[rank] = choir.init(store=s, rank=rank, size=2)
        group.all_reduce(bytearray(b"\1"))
        group.close()

    threads = [threading.Thread(target=join, args=(r,)) for r in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(20)
    check(sorted(groups), [0, 1])
    raises(TypeError, choir.init, store=3, rank=0, size=1)
    python_tests.when_asleep(s.close)
    raises(choir.TimeoutError, choir.init, store=s, rank=0, size=2, timeout=0.3)
    raises(choir.StateError, choir.init, store=s, rank=0, size=1, has="the store is closed")
    raises(TypeError, choir.init, rank=0)


if __name__ == "__main__":
    python_tests.main({kinds: 0, closing_ends_waits: 0, joining_through_one: 0})
