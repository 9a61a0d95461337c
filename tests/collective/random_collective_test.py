#!/usr/bin/env python3
"""random_collective_test.py - random cases of collectives with ranks as processes, 1 to 17 of them.

With ranks as threads the same cases are in collectives_test.c; together 3,000 in make test, 20,000 in the
long run. CHOIR_TEST_SEED begins elsewhere than at 1. A case that fails says how to repeat it.
"""
# timeout: 900
from ranks import *

CASES = 380 if LONG else 60  # of each number of ranks
SEED = int(os.environ.get("CHOIR_TEST_SEED", "1"))

for size in range(1, 18):
    first = SEED * 17 + size - 1
    done = run_ranks(size, TESTS / "random_collective", "--join", "--seed", first, "--cases", CASES, seconds=400)
    check(done.returncode == 0, f"choir run -n {size} build/bin/tests/random_collective --join --seed {first} "
          f"--cases {CASES}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
print(f"{17 * CASES} cases with 1 to 17 processes")
