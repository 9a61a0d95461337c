#!/usr/bin/env python3
"""run_gloo_test.py - torch.distributed under `choir run`, unchanged: gloo finds its store by MASTER_ADDR."""
# timeout: 240
import os
import pathlib
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from launching import SOURCE, check, lines, main, run

VENV = pathlib.Path(os.environ.get("CHOIR_TEST_VENV") or SOURCE / "build/venv")
PYTHON = VENV / "bin/python"
if not PYTHON.exists() or not list(VENV.glob("lib/python*/site-packages/torch")):
    print(f"skip: no Python with torch in {VENV} (CHOIR_TEST_VENV)")
    sys.exit(77)

PROGRAM = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
t = torch.full((1000,), float(rank + 1))
dist.all_reduce(t)
assert t.tolist() == [size * (size + 1) / 2] * 1000, t
seen = [None] * size
dist.all_gather_object(seen, {"rank": rank})
assert seen == [{"rank": i} for i in range(size)], seen
dist.barrier()
dist.destroy_process_group()
print("summed", int(t[0]), "of", size)
"""


def test_all_reduce():
    done = run("-n", 2, PYTHON, "-c", PROGRAM, timeout=200)
    check(done.returncode == 0, done)
    check(sorted(lines(done.stdout)) == ["0: summed 3 of 2", "1: summed 3 of 2"], done)


main(globals())
