#!/usr/bin/env python3
"""torchrun_test.py - choir_init under torchrun: ranks find each other through its agent's store, also when the program
calls torch.distributed in the same processes; and through PyTorch's older server, with torchrun's variables set by
hand."""
# timeout: 120
import os
import subprocess
import sys
import tempfile
from datetime import timedelta

import torch_tests
from torch_tests import BUILD, SLOWNESS, check

torch_tests.need_torch()

EXAMPLE = BUILD / "bin" / "examples" / "say_hello"

# A rank that uses both: gloo and choir_init over one agent's store.
BOTH = f"""
import ctypes, sys, torch, torch.distributed as dist
choir = ctypes.CDLL({str(BUILD / "lib" / "libchoir.so")!r})
choir.choir_last_error.restype = ctypes.c_char_p
dist.init_process_group("gloo")
group = ctypes.c_void_p()
if choir.choir_init(ctypes.byref(group), None) != 0:
    raise SystemExit(choir.choir_last_error().decode())
x = torch.tensor([float(choir.choir_group_rank(group))])
dist.all_reduce(x)
size = choir.choir_group_size(group)
assert x.item() == size * (size - 1) / 2 and size == dist.get_world_size(), (x, size)
dist.barrier()
choir.choir_group_destroy(group)
dist.destroy_process_group()
sys.stdout.write(f"both {{size}}\\n")  # one write: torchrun's ranks are unbuffered, where print() writes word by word
"""


def environment(**variables):
    env = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
    env.update(GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1", **variables)
    return env


def torchrun(ranks, *program):
    done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks),
                           *program], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=100 * SLOWNESS, check=False)
    check(done.returncode, 0, f"the exit code, with this output: {done.stdout}")
    return done.stdout


def check_example(said):
    for words in ("3 ranks, 3 of them here", "torchrun", "rank 2: host"):
        check(words in said, True, f"{words!r} in {said!r}")


def example():
    check_example(torchrun(3, "--no-python", str(EXAMPLE)))


def older_server():
    import torch.distributed as dist  # pylint: disable=import-outside-toplevel
    agent = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=False,
                          timeout=timedelta(seconds=20))
    ranks = [subprocess.Popen([EXAMPLE], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env=environment(RANK=str(r), WORLD_SIZE="3", LOCAL_RANK=str(r), LOCAL_WORLD_SIZE="3",
                                              MASTER_ADDR="127.0.0.1", MASTER_PORT=str(agent.port),
                                              TORCHELASTIC_USE_AGENT_STORE="True", TORCHELASTIC_RUN_ID="old"))
             for r in range(3)]
    said = [rank.communicate(timeout=60 * SLOWNESS)[0] for rank in ranks]
    check([rank.returncode for rank in ranks], [0] * 3, f"exit codes, with {said}")
    check_example(said[0])


def both():
    with tempfile.NamedTemporaryFile("w", suffix=".py") as program:
        program.write(BOTH)
        program.flush()
        said = torchrun(2, program.name)
        check(said.count("both 2"), 2, f"ranks that said so in {said!r}")


def main():
    check(EXAMPLE.exists(), True, f"{EXAMPLE} is there")
    torch_tests.run_all([example, older_server, both])


main()
sys.exit(0)
