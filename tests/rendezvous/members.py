"""members.py - start ranks (member.c), read what they found, and end them. For the tests beside it."""
import json
import os
import pathlib
import socket
import subprocess
import sys

BUILD = pathlib.Path(os.environ.get("CHOIR_TEST_BUILD", "build"))
MEMBER = BUILD / "bin" / "tests" / "member"
CHOIR = BUILD / "bin" / "choir"
# What launchers of this process may have set must not reach the ranks.
OURS = ("CHOIR_", "RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "ROLE_", "MASTER_", "TORCHELASTIC_", "SLURM_", "OMPI_",
        "PMI", "MPI_")


def environment(**variables):
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(OURS) or k.startswith(("CHOIR_TEST", "CHOIR_SPIN", "CHOIR_YIELD"))}
    env.update({k: str(v) for k, v in variables.items()})
    return env


def torch_variables(rank, size, port, **more):
    return environment(RANK=rank, WORLD_SIZE=size, MASTER_ADDR="127.0.0.1", MASTER_PORT=port, **more)


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def start(*args, env=None, before=(), **more):
    return subprocess.Popen([*before, str(MEMBER), *map(str, args)], env=env or environment(), stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


def found(process, seconds=30):
    """What a rank found, when it has ended well."""
    out, err = process.communicate(timeout=seconds)
    check(process.returncode == 0, f"exit code {process.returncode}: {err}")
    return json.loads(out.splitlines()[-1])


def refused(process, seconds=30):
    """What a rank complained of."""
    out, err = process.communicate(timeout=seconds)
    check(process.returncode == 1, f"exit code {process.returncode}, expected 1: {out}{err}")
    return err


def check_whole(infos, size, hosts=None):
    """Every rank knows all; ranks of one host share memory, as `hosts` (rank -> index) says."""
    check(sorted(i["rank"] for i in infos) == list(range(size)), f"ranks {[i['rank'] for i in infos]}")
    for info in infos:
        check(info["size"] == size and len(info["peers"]) == size, info)
        for rank, peer in enumerate(info["peers"]):
            here = hosts is None or hosts[rank] == hosts[info["rank"]]
            check(peer["rank"] == rank and peer["shares"] == here, peer)
            check(peer["host_index"] == (0 if hosts is None else hosts[rank]), peer)
            check(len(peer["boot_id"]) == 36 and peer["cpu"] and peer["version"] and peer["address"], peer)
            check({**peer, "shares": 0, "alive": 0} == {**infos[0]["peers"][rank], "shares": 0, "alive": 0}, peer)


def check(condition, text):
    if not condition:
        sys.exit(f"FAILED: {text}")
