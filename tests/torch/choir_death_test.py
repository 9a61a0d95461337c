#!/usr/bin/env python3
# timeout: 900
"""choir_death_test.py - a rank is killed under DDP: the others raise within a second, and name it."""
import os
import signal
import socket
import subprocess
import sys
import time

import choir_ranks

choir_ranks.need_choir_torch()

RANKS, VICTIM = 4, 2


def be_rank():
    import torch
    import torch.distributed as dist
    import torch.nn as nn

    import choir.torch  # noqa: F401

    dist.init_process_group("choir")
    torch.manual_seed(0)
    net = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 8)))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    step = 0
    try:
        while True:
            optimizer.zero_grad()
            net(torch.ones(4, 64)).sum().backward()
            optimizer.step()
            step += 1
            if step == 5:
                print("training", flush=True)
    except dist.DistBackendError as error:
        print(f"{time.monotonic()} {error}", flush=True)
        os._exit(3)


def start_ranks():
    """Each a process of its own, as no launcher would that ends the rest when one dies."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    env = {**os.environ, "CHOIR_TEST_AS_RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
           "WORLD_SIZE": str(RANKS)}  # fmt: skip
    return [subprocess.Popen([sys.executable, os.path.abspath(__file__)], stdout=subprocess.PIPE, text=True,
                             env={**env, "RANK": str(rank)}) for rank in range(RANKS)]  # fmt: skip


def main():
    choir_ranks.build_backend()
    ranks = start_ranks()
    try:
        for rank in ranks:
            choir_ranks.check(rank.stdout.readline(), "training\n", "what a rank says")
        killed = time.monotonic()
        ranks[VICTIM].send_signal(signal.SIGKILL)
        for number, rank in enumerate(ranks):
            if number == VICTIM:
                continue
            line = rank.stdout.readline()
            print(f"rank {number}: {line.strip()}")
            when, text = line.split(" ", 1)
            took = float(when) - killed
            print(f"rank {number}: after {took * 1000:.0f} ms")
            if took > 1.0 * choir_ranks.SLOWNESS:
                raise AssertionError(f"rank {number} raised after {took:.2f} s")
            if f"rank {VICTIM}" not in text:
                raise AssertionError(f"rank {number} does not name rank {VICTIM}: {text}")
            choir_ranks.check(rank.wait(60), 3, "exit code")
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


if __name__ == "__main__":
    be_rank() if os.environ.get("CHOIR_TEST_AS_RANK") else main()
