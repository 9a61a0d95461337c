#!/usr/bin/env python3
"""overruled_test.py - CHOIR_ALGO must be the same on all ranks: all of them refuse to begin otherwise, and say why.

Ranks that take different algorithms for one operation wait for each other in vain, or read what is not there yet.
"""
# timeout: 60
from ranks import *


def start(*algos):
    port = free_port()
    return [Rank(r, len(algos), port, "late", 0, env={"CHOIR_ALGO": algo} if algo else {})
            for r, algo in enumerate(algos)]


def refused(*algos):
    ranks = start(*algos)
    for rank in ranks:
        rank.wait_line("CHOIR_ALGO", errors=True)
        check(rank.process.wait(60) == 3, f"{algos}: rank {rank.rank} ended with {rank.process.returncode}")
        text = rank.errors[-1][1]
        other = next(r for r, algo in enumerate(algos) if algo != algos[rank.rank])
        check(f'"{algos[rank.rank]}"' in text and f"rank {other}" in text, f"{algos}: rank {rank.rank}: {text}")


refused("allreduce:one-shot", "allreduce:two-shot")
refused("", "", "allreduce:ring")
refused("allreduce:ring", "allreduce:nonsense")

for rank in start("allreduce:ring", "allreduce:ring"):
    rank.finished()
