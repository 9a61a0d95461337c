#!/usr/bin/env python3
# timeout: 300
"""training_examples_test.py - train_ddp.py and train_fsdp2.py of the examples run under the launchers that they name, and
fail when ranks differ or do not learn."""
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import choir_ranks
from choir_ranks import SLOWNESS, check

choir_ranks.need_choir_torch()

EXAMPLES = choir_ranks.torch_tests.SOURCE / "examples"
DDP, FSDP2 = EXAMPLES / "08_ddp" / "train_ddp.py", EXAMPLES / "09_fsdp2" / "train_fsdp2.py"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
CHOIR_RUN = [str(choir_ranks.CHOIR), "run", "-n", "2", sys.executable]
FELL = r"loss fell from 0\.\d+ to 0\.00\d+, the same on all 2 ranks\n"

# example, launcher, what is changed in it first, exit code, what it must print
RUNS = [
    (DDP, TORCHRUN, None, 0, FELL),
    (DDP, CHOIR_RUN, None, 0, FELL),
    (DDP, CHOIR_RUN, ("= DistributedDataParallel(", "= ("), 1, "rank 1: the losses differ between ranks"),
    (FSDP2, CHOIR_RUN, None, 0, FELL + "0: weights kept, by rank: 2241, 2176 of 4417\n"),
    *choir_ranks.usually([], [(FSDP2, TORCHRUN, None, 0, FELL)]),
    (FSDP2, CHOIR_RUN, ("lr=0.02", "lr=0"), 1, "rank 1: the loss did not fall"),
]


def changed(example, change, folder):
    if change is None:
        return example
    text = example.read_text()
    check(text.count(change[0]), 1, f"how often {change[0]!r} is in {example.name}")
    copy = pathlib.Path(folder, example.name)
    copy.write_text(text.replace(*change))
    return copy


def run(example, launcher, change, code, pattern):
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([*launcher, str(changed(example, change, folder))], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=100 * SLOWNESS)  # fmt: skip
    if done.returncode != code or not re.search(pattern, done.stdout):
        sys.exit(f"{example.name}, {change}: exit code {done.returncode}, not {code}, or no {pattern!r}:\n{done.stdout}")
    print(f"ok   {example.name} {change or ''} ({time.monotonic() - began:.1f} s)", flush=True)


choir_ranks.build_backend()
for row in RUNS:
    run(*row)
