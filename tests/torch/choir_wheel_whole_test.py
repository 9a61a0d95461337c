#!/usr/bin/env python3
# timeout: 5400
# long
"""choir_wheel_whole_test.py - PyTorch's own distributed tests, for "choir" and for gloo, with 2, 3 and 4 ranks.

Prints how many passed, failed and were skipped, side by side, each test whose outcome differs, and the reasons. Choir
must pass what gloo passes, and what the tables of the tests give to MPI; not what torch refuses by name. The group in
Python must pass the same, with 2 ranks."""
import tempfile

import choir_ranks

choir_ranks.need_choir_torch()

import choir_wheel  # noqa: E402

choir_ranks.build_backend()
for size in (2, 3, 4):
    by_backend = {backend: choir_wheel.run(backend, size) for backend in ("choir", "gloo")}
    choir_wheel.compare(by_backend, size)
    choir_wheel.check_all_passed(by_backend["choir"])
    choir_wheel.check_those_of_mpi(by_backend["choir"], size)
    behind = [name for name, row in by_backend["gloo"].items()
              if row["what"] == "passed" and by_backend["choir"][name]["what"] != "passed"]  # fmt: skip
    choir_ranks.check(sorted(set(behind) - set(choir_wheel.REFUSED)), [], "tests that gloo alone passes")
    if size == 2:
        with tempfile.TemporaryDirectory() as empty:
            python = choir_wheel.run("choir", size, CXX="none", CHOIR_CACHE_DIR=empty)
        print(f"{size} ranks, choir in Python {choir_wheel.count(python)}")
        choir_wheel.check_all_passed(python)
        choir_wheel.check_those_of_mpi(python, size)
        behind = [name for name, row in by_backend["choir"].items() if row["what"] == "passed" and python[name]["what"] != "passed"]
        choir_ranks.check(behind, [], "tests that pass only compiled")
