#!/usr/bin/env python3
"""growth_test.py - groups made and destroyed, and splits, by the thousand: descriptors, maps and memory stay."""
# timeout: 600
from ranks import *

# The flight record remembers groups for as long as their operations; a short one is full before anything is measured.
groups, splits = (10000, 1000) if LONG else (300, 200)
done = run_ranks(2, "--env", "CHOIR_TRACE_OPERATIONS=20", TESTS / "growth", groups, splits, seconds=500)
check(done.returncode == 0, f"exit code {done.returncode}: {done.stdout}{done.stderr}")
done = run_ranks(4, "--env", "CHOIR_TRACE_OPERATIONS=20", TESTS / "growth", 20, splits, seconds=500)
check(done.returncode == 0, f"exit code {done.returncode}: {done.stdout}{done.stderr}")
print(done.stdout, end="")
