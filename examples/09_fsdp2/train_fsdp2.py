"""train_fsdp2.py - a network of which every rank keeps a part, trained on CPUs with PyTorch's FSDP2 over Choir.

    torchrun --nproc-per-node 2 train_fsdp2.py
    choir run -n 2 python train_fsdp2.py

Between uses the weights, their gradients and the optimizer's state are split over the ranks. Before a layer is used an
all-gather brings its weights together; after backward() a reduce-scatter hands every rank the mean gradient of its part.
"""
import sys

import choir.torch  # the backend "choir"
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import mse_loss


def examples(count, seed):
    x = torch.rand(count, 2, generator=torch.Generator().manual_seed(seed)) * 2 - 1
    return x, torch.sin(3 * x[:, :1]) * torch.cos(2 * x[:, 1:])


dist.init_process_group("choir")
rank, size = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (size,))

torch.manual_seed(0)  # each rank takes its part of its own weights, so all must start alike
net = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
whole = sum(p.numel() for p in net.parameters())
for layer in (net[0], net[2], net[4]):
    fully_shard(layer, mesh=mesh)  # what is gathered together
fully_shard(net, mesh=mesh)
kept = sum(p.to_local().numel() for p in net.parameters())

optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
own = [part.split(256) for part in examples(4096, seed=rank + 1)]
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
dist.all_gather_object(everywhere, (kept, losses))
if any(theirs != losses for _, theirs in everywhere):
    sys.exit(f"rank {rank}: the losses differ between ranks: {everywhere}")
if not losses[-1] < losses[0] / 10:
    sys.exit(f"rank {rank}: the loss did not fall: {losses}")
if sum(part for part, _ in everywhere) != whole:
    sys.exit(f"rank {rank}: the parts are not {whole} weights: {everywhere}")
if rank == 0:
    print(f"loss fell from {losses[0]:.5f} to {losses[-1]:.5f}, the same on all {size} ranks")
    print(f"weights kept, by rank: {', '.join(str(part) for part, _ in everywhere)} of {whole}")
dist.destroy_process_group()
