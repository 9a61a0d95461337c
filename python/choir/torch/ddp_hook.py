"""A communication hook for DistributedDataParallel. It has a file of its own because torch compares its annotations with types, which they are
only where annotations are not put off."""
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket


def average_hook(group: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """For DistributedDataParallel: `net.register_comm_hook(None, choir.torch.average_hook)` on a group of "choir".

    Gradients are averaged while they are added up. Without it DDP divides every gradient by the number of ranks before they
    are, which takes a pass of its own through all of them, half as long as adding them up."""
    work = dist.all_reduce(bucket.buffer(), dist.ReduceOp.AVG, group=group, async_op=True)
    averaged: torch.futures.Future[torch.Tensor] = work.get_future().then(lambda future: future.value()[0])
    return averaged
