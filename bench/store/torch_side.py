"""torch_side.py - PyTorch's side of bench/store/compare_stores: the same roles as store_bench.c, over TCPStore.

    torch_side.py serve | client HOST:PORT ID
"""
import datetime
import sys
import time

from torch.distributed import TCPStore

VALUE = "0123456789abcdef"
NKEYS = 8


def serve():
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=True)
    print(f"127.0.0.1:{store.port}", flush=True)
    sys.stdin.read()


def calls(s, key):
    """name: (once before, each before, the timed call, each after, whether it is not waited for)"""
    many = [f"{key}/many/{n}" for n in range(NKEYS)]
    own = [key]

    def set_own(_=0):
        s.set(key, VALUE)

    def set_many():
        for k in many:
            s.set(k, VALUE)

    nothing = None
    return {
        "set": (nothing, nothing, set_own, nothing, True),
        "get": (set_own, nothing, lambda i: s.get(key), nothing, False),
        "add": (lambda: s.set(many[0], "0"), nothing, lambda i: s.add(many[0], 1), nothing, False),
        "compare_set": (set_own, nothing, lambda i: s.compare_set(key, VALUE, VALUE), nothing, False),
        "check": (set_own, nothing, lambda i: s.check(own), nothing, False),
        "wait": (set_own, nothing, lambda i: s.wait(own), nothing, False),
        "multi_get": (set_many, nothing, lambda i: s.multi_get(many), nothing, False),
        "append": (set_own, nothing, lambda i: s.append(key, VALUE), nothing, True),
        "delete": (nothing, lambda i: s.set(f"{key}/{i}", VALUE), lambda i: s.delete_key(f"{key}/{i}"), nothing, False),
        "queue_push": (nothing, nothing, lambda i: s.queue_push(key, VALUE), lambda i: s.queue_pop(key), True),
        "queue_pop": (nothing, lambda i: s.queue_push(key, VALUE), lambda i: s.queue_pop(key), nothing, False),
        "num_keys": (set_own, nothing, lambda i: s.num_keys(), nothing, False),
        "list_keys": (set_many, nothing, lambda i: s.list_keys(), nothing, False),
    }


def client(address, ident):
    host, port = address.rsplit(":", 1)
    store = TCPStore(host, int(port), is_master=False, wait_for_workers=False,
                     timeout=datetime.timedelta(seconds=300))
    key = f"bench/{ident}"
    table = calls(store, key)
    print("ready", flush=True)
    for line in sys.stdin:
        name, count = line.split()
        count = int(count)
        before, each, call, after, quiet = table[name]
        if before:
            before()
        if each:
            for i in range(count):
                each(i)
        store.check([key])
        began = time.monotonic_ns()
        for i in range(count):
            call(i)
        if quiet:
            store.check([key])
        took = time.monotonic_ns() - began
        if after:
            for i in range(count):
                after(i)
        print(f"{took / count:.1f}", flush=True)


if sys.argv[1:2] == ["serve"]:
    serve()
else:
    client(sys.argv[2], sys.argv[3])
