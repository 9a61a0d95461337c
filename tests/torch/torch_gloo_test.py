#!/usr/bin/env python3
"""torch_gloo_test.py - torch.distributed with gloo, its ranks meeting over our server."""
# timeout: 120
import os
import subprocess
import sys

import torch_tests
from torch_tests import SLOWNESS, check

torch_tests.need_torch()

RANK = r"""
import sys
import torch
import torch.distributed as dist
from datetime import timedelta

rank, size, host, port, how, seconds = sys.argv[1:]
rank, size, limit = int(rank), int(size), timedelta(seconds=int(seconds))
if how == "store":
    store = dist.TCPStore(host, int(port), size, False, timeout=limit)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=limit)
else:
    dist.init_process_group("gloo", init_method="env://", timeout=limit)
x = torch.arange(1000, dtype=torch.float32) * (rank + 1)
dist.all_reduce(x)
assert torch.equal(x, torch.arange(1000, dtype=torch.float32) * (size * (size + 1) // 2)), x
sub = dist.new_group([0, size - 1])
if rank in (0, size - 1):
    y = torch.ones(1)
    dist.all_reduce(y, group=sub)
    assert y.item() == 2, y
dist.barrier()
dist.destroy_process_group()
"""


def start(rank, size, address, how):
    env = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR=address[0], MASTER_PORT=str(address[1]),
               TORCHELASTIC_USE_AGENT_STORE="True", GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1")
    return subprocess.Popen([sys.executable, "-c", RANK, str(rank), str(size), address[0], str(address[1]), how,
                             str(40 * SLOWNESS)], env=env)


def job(size, how):
    with torch_tests.our_server() as address:
        ranks = [start(rank, size, address, how) for rank in range(size)]
        try:
            check([rank.wait(60 * SLOWNESS) for rank in ranks], [0] * size, "exit codes")
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
    print(f"ok   {size} ranks by {how}", flush=True)


job(2, "store")
job(3, "environment")
sys.exit(0)
