#!/usr/bin/env python3
"""hosts_test.py - two hosts, which are two network namespaces: ranks meet over the wire, and share memory at home."""
# timeout: 60
import contextlib
import os
import subprocess
import tempfile

from members import *

NAMES = [f"choir-test-{os.getpid()}-{i}" for i in range(2)]
ADDRESSES = ["10.213.7.1", "10.213.7.2"]


def ip(*args):
    subprocess.run(["ip", *args], check=True, capture_output=True, text=True)


@contextlib.contextmanager
def two_hosts():
    """Two namespaces with a cable between them."""
    try:
        for name in NAMES:
            ip("netns", "add", name)
        ip("link", "add", "v0", "netns", NAMES[0], "type", "veth", "peer", "name", "v1", "netns", NAMES[1])
        for i, name in enumerate(NAMES):
            ip("-n", name, "addr", "add", f"{ADDRESSES[i]}/24", "dev", f"v{i}")
            ip("-n", name, "link", "set", f"v{i}", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield
    finally:
        for name in NAMES:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def on(host, *args, **variables):
    return start(*args, env=environment(**variables), before=["ip", "netns", "exec", NAMES[host]])


def write_token():
    path = os.path.join(tempfile.mkdtemp(), "token")
    with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
        file.write(os.urandom(32).hex() + "\n")
    return path


def meet(token):
    """Ranks 0 and 2 on one host, 1 and 3 on the other."""
    ranks = [on(r % 2, "--timeout", 20000, RANK=r, WORLD_SIZE=4, MASTER_ADDR=ADDRESSES[0], MASTER_PORT=29511,
                CHOIR_TOKEN_FILE=token) for r in range(4)]
    infos = [found(p) for p in ranks]
    check_whole(infos, 4, hosts=[0, 1, 0, 1])
    for rank, peer in enumerate(infos[3]["peers"]):
        check(peer["address"] == ADDRESSES[rank % 2], peer)
    check(infos[3]["local_rank"] == 1 and infos[3]["local_size"] == 2, infos[3])


def no_token():
    """Beyond loopback a token is needed."""
    text = refused(on(0, "--timeout", 2000, RANK=0, WORLD_SIZE=2, MASTER_ADDR=ADDRESSES[0], MASTER_PORT=29512))
    check("token" in text and "loopback" in text, text)


if os.geteuid() != 0:
    print("skip: making network namespaces needs root")
    sys.exit(77)
with two_hosts():
    meet(write_token())
    no_token()
