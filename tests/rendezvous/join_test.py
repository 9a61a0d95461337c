#!/usr/bin/env python3
"""join_test.py - processes join by every kind of URL and by torch's variables, and leave."""
# timeout: 60
import os
import signal
import subprocess
import tempfile

from members import *


def by_url(url, size, *more, env=None):
    ranks = [start("--url", url, "--rank", r, "--size", size, "--timeout", 20000, *more, env=env) for r in range(size)]
    infos = [found(p) for p in ranks]
    check_whole(infos, size)
    return infos


def tcp():
    info = by_url(f"tcp://127.0.0.1:{free_port()}", 4)[2]
    check("served by rank 0, no token" in info["origin"], info["origin"])
    check(all(p["address"] == "127.0.0.1" for p in info["peers"]), info)


def tcp_with_token():
    path = os.path.join(tempfile.mkdtemp(), "token")
    subprocess.run(["sh", "-c", f"umask 077; head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \\n' > {path}"], check=True)
    info = by_url(f"tcp://127.0.0.1:{free_port()}", 2, "--token-file", path)[1]
    check("token from a file" in info["origin"], info["origin"])
    by_url(f"tcp://127.0.0.1:{free_port()}", 2, env=environment(CHOIR_TOKEN_FILE=path))


def query():
    port = free_port()
    ranks = [start("--url", f"tcp://localhost:{port}?rank={r}&world_size=3") for r in range(3)]
    check_whole([found(p) for p in ranks], 3)


def file():
    path = os.path.join(tempfile.mkdtemp(), "meeting")
    by_url(f"file://{path}", 3)
    check(not os.path.exists(path), "the last rank left the file behind")


def torch_environment():
    port = free_port()
    ranks = [start("--again", env=torch_variables(r, 3, port)) for r in range(3)]
    infos = [found(p) for p in ranks]
    check_whole(infos, 3)
    check("torchrun" in infos[0]["origin"], infos[0])


def alone():
    info = found(start())
    check(info["size"] == 1 and info["rank"] == 0, info)


def death_is_seen():
    """A rank that is killed is dead to its neighbours, by the pidfd it handed over."""
    port = free_port()
    ranks = [start("--stay", env=torch_variables(r, 3, port)) for r in range(3)]
    for rank in ranks:
        check('"alive": true' in rank.stdout.readline(), "not all joined")
    ranks[1].send_signal(signal.SIGKILL)
    ranks[1].wait()
    for r, alive in ((0, [True, False, True]), (2, [False, False, True])):
        info = found(ranks[r])
        check([p["alive"] for p in info["peers"]] == alive, info["peers"])
    ranks[1].communicate()


def many():
    """More than fit one message of descriptors, and more than may be under way without an answer."""
    by_url(f"tcp://127.0.0.1:{free_port()}", 70)


tcp()
tcp_with_token()
query()
file()
torch_environment()
alone()
death_is_seen()
many()
