#!/usr/bin/env python3
"""bound_test.py - ranks that are bound to processors know how many they have together, and all know the same.

Started without a launcher, as mpirun and srun start them: nobody tells them what the others have.
"""
# timeout: 60
import re

from ranks import *

ALLOWED = sorted(os.sched_getaffinity(0))


def processors(*masks, **env):
    """What each rank says, the first of which may use the first of `masks`, and so on."""
    port, ranks = free_port(), []
    for r, mask in enumerate(masks):
        os.sched_setaffinity(0, mask)  # a child inherits it
        ranks.append(Rank(r, len(masks), port, "late", 0, env={"CHOIR_LOG": "debug", **env}))
    os.sched_setaffinity(0, ALLOWED)
    for rank in ranks:
        rank.finished()
    said = [[int(n) for _, line in rank.errors for n in re.findall(r"have (\d+) processors together", line)] for rank in ranks]
    check(all(len(numbers) == 1 for numbers in said), f"{masks}: {said}")
    return [numbers[0] for numbers in said]


def expect(number, *masks, **env):
    seen = processors(*masks, **env)
    check(seen == [number] * len(masks), f"{masks} {env}: {seen}, expected {number}")


one = {ALLOWED[0]}
expect(1, one, one)
expect(7, one, one, CHOIR_PROCESSORS=7)
# With a quota there may be fewer than masks say.
if processors(ALLOWED, ALLOWED)[0] >= 2:
    other = {ALLOWED[1]}
    expect(2, one, other)
    expect(2, one, other, other)
    expect(2, one, one | other)
    expect(1, one, other, CHOIR_PROCESSORS=1)
