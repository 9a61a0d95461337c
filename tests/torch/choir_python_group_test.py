#!/usr/bin/env python3
# timeout: 900
"""choir_python_group_test.py - where there is no compiler a group in Python stands in for the compiled part, says so once
for each process, and comes to the same values: the other tests, run that way."""
import os
import pathlib
import sys
import tempfile

import choir_ranks

choir_ranks.need_choir_torch()

HERE = pathlib.Path(__file__).resolve().parent
RANKS = 2

for name in choir_ranks.usually(["choir_values_test.py"], ["choir_values_test.py", "choir_work_test.py", "choir_training_test.py"]):
    with tempfile.TemporaryDirectory() as empty:
        done = choir_ranks.start(RANKS, HERE / name, env={"CHOIR_TEST_AS_RANK": "1", "CXX": "none", "CHOIR_CACHE_DIR": empty})
    if done.returncode != 0:
        print(done.stdout)
        sys.exit(f"{name}: exit code {done.returncode}")
    choir_ranks.check(done.stdout.count("a slower group in Python takes its place"), RANKS, "how often it is said")
