#!/usr/bin/env python3
# timeout: 900
"""choir_training_test.py - what people train with comes to the same losses on "choir" as on gloo: DDP, FSDP2, tensor
parallelism with DTensor, ZeroRedundancyOptimizer, and a model that goes on from a distributed checkpoint."""
import os
import sys
import tempfile

import choir_ranks

choir_ranks.need_choir_torch()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.nn as nn  # noqa: E402

STEPS = 4


def model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))


def batch(step, rank):
    generator = torch.Generator().manual_seed(step * 100 + rank)
    return torch.randn(8, 24, generator=generator), torch.randn(8, 4, generator=generator)


def train(net, optimizer, rank, first=0, steps=STEPS):
    """The mean loss over the ranks after each step."""
    losses = []
    for step in range(first, first + steps):
        x, y = batch(step, rank)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, dist.ReduceOp.SUM)
        losses.append(mean.item() / dist.get_world_size())
    return losses


def ddp(rank, size):
    net = nn.parallel.DistributedDataParallel(model(), bucket_cap_mb=0.002)
    return train(net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), rank)


def ddp_average_hook(rank, size):
    import choir.torch

    net = nn.parallel.DistributedDataParallel(model(), bucket_cap_mb=0.002, gradient_as_bucket_view=True)
    if dist.get_backend() == "choir":  # gloo has no averages
        net.register_comm_hook(None, choir.torch.average_hook)
    return train(net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), rank)


def ddp_unused_and_sparse(rank, size):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(2)
            self.table = nn.EmbeddingBag(50, 24, sparse=True, mode="sum")
            self.used, self.unused = nn.Linear(24, 4), nn.Linear(24, 4)

        def forward(self, x):
            return self.used(x + self.table((x[:, :3].abs() * 10).long() % 50))

    net = nn.parallel.DistributedDataParallel(Net(), find_unused_parameters=True)
    return train(net, torch.optim.SGD(net.parameters(), lr=0.1), rank)


def zero_optimizer(rank, size):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    net = nn.parallel.DistributedDataParallel(model())
    return train(net, ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, lr=0.01), rank)


def sharded():
    from torch.distributed.fsdp import fully_shard

    net = model()
    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in net:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    return fully_shard(net, mesh=mesh)


def fsdp2(rank, size):
    net = sharded()
    return train(net, torch.optim.Adam(net.parameters(), lr=0.01), rank)


def tensor_parallel(rank, size):
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = dist.device_mesh.init_device_mesh("cpu", (size,))
    net = parallelize_module(model(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return train(net, torch.optim.SGD(net.parameters(), lr=0.1), 0)  # all ranks have the same batch


def checkpoint(rank, size):
    import torch.distributed.checkpoint as dcp

    folder = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder, src=0)
    net = sharded()
    losses = train(net, torch.optim.SGD(net.parameters(), lr=0.1), rank)
    dcp.save({"model": net.state_dict()}, checkpoint_id=folder[0])
    again = sharded()
    with torch.no_grad():
        for parameter in again.parameters():
            parameter.mul_(0)
    state = {"model": again.state_dict()}
    dcp.load(state, checkpoint_id=folder[0])
    again.load_state_dict(state["model"])
    return losses + train(again, torch.optim.SGD(again.parameters(), lr=0.1), rank, first=STEPS)


KINDS = [ddp, ddp_average_hook, ddp_unused_and_sparse, zero_optimizer, fsdp2, tensor_parallel, checkpoint]


def losses_on(backend):
    dist.init_process_group(backend)
    found = {kind.__name__: kind(dist.get_rank(), dist.get_world_size()) for kind in KINDS}
    rank = dist.get_rank()
    dist.barrier()
    dist.destroy_process_group()
    return rank, found


def be_rank():
    import choir.torch  # noqa: F401

    # In this order: a thread of gloo's lets go of its last tensors some time after, and at the end of the interpreter that aborts.
    _, theirs = losses_on("gloo")
    rank, ours = losses_on("choir")
    for kind in ours:
        # Four ranks are added up in another order by gloo.
        same = all(abs(a - b) <= 2e-5 * abs(b) for a, b in zip(ours[kind], theirs[kind]))
        if len(ours[kind]) < STEPS or len(ours[kind]) != len(theirs[kind]) or not same or len(set(ours[kind])) < STEPS:
            sys.exit(f"rank {rank}: {kind}: choir {ours[kind]}, gloo {theirs[kind]}")
    if rank == 0:
        print({kind: [round(loss, 5) for loss in losses] for kind, losses in ours.items()})


if __name__ == "__main__":
    if os.environ.get("CHOIR_TEST_AS_RANK"):
        be_rank()
    else:
        choir_ranks.build_backend()
        for ranks in choir_ranks.usually([2], [2, 4]):
            done = choir_ranks.start(ranks, os.path.abspath(__file__), env={"CHOIR_TEST_AS_RANK": "1"})
            print(done.stdout)
            if done.returncode != 0:
                sys.exit(f"with {ranks} ranks: exit code {done.returncode}")
