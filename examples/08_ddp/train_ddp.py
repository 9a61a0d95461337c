"""train_ddp.py - a small network, trained on CPUs with PyTorch's DistributedDataParallel over Choir.

    torchrun --nproc-per-node 2 train_ddp.py
    choir run -n 2 python train_ddp.py

Every rank has examples of its own. During backward() DDP hands the gradients to Choir, which makes of them the mean
over all ranks, the same bits on each. So the weights stay equal, and on the same examples so does the loss.
"""
import sys

import choir.torch  # the backend "choir"
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel


def examples(count, seed):
    x = torch.rand(count, 2, generator=torch.Generator().manual_seed(seed)) * 2 - 1
    return x, torch.sin(3 * x[:, :1]) * torch.cos(2 * x[:, 1:])


dist.init_process_group("choir")
rank, size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(rank)  # every rank starts elsewhere, then DDP takes rank 0's weights
net = DistributedDataParallel(nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 1)))
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
own = [part.split(64) for part in examples(4096, seed=rank + 1)]
test_x, test_y = examples(1024, seed=0)  # the same on all ranks
losses = []

for epoch in range(6):
    for x, y in zip(*own):
        optimizer.zero_grad()
        mse_loss(net(x), y).backward()
        optimizer.step()
    with torch.no_grad():
        losses.append(mse_loss(net(test_x), test_y).item())
    if rank == 0:
        print(f"epoch {epoch}  loss {losses[-1]:.5f}", flush=True)

everywhere = [None] * size
dist.all_gather_object(everywhere, losses)
if any(theirs != losses for theirs in everywhere):
    sys.exit(f"rank {rank}: the losses differ between ranks: {everywhere}")
if not losses[-1] < losses[0] / 10:
    sys.exit(f"rank {rank}: the loss did not fall: {losses}")
if rank == 0:
    print(f"loss fell from {losses[0]:.5f} to {losses[-1]:.5f}, the same on all {size} ranks")
dist.destroy_process_group()
