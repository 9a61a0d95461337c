"""choir_wheel.py - run PyTorch's own distributed tests (choir_wheel_cases.py) and tell how they went, side by side."""
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from choir_ranks import SLOWNESS, check

CASES = pathlib.Path(__file__).with_name("choir_wheel_cases.py")

# What torch itself refuses to a backend by its name.
BY_NAME = "dist.monitored_barrier() is for gloo by name; group.monitored_barrier() works"
REFUSED = {
    "test_ddp_logging_data_cpu": "DDP's log calls every backend \"custom\" that is not torch's own",
    "test_monitored_barrier_failure_order": BY_NAME,
    "test_monitored_barrier_gloo": BY_NAME,
    "test_monitored_barrier_gloo_subgroup": BY_NAME,
    "test_monitored_barrier_wait_all_ranks": BY_NAME,
}

# What the tables give to MPI alone, and "choir" does; those of subgroups run from three ranks on.
OF_MPI = [
    f"test_all_to_all{form}" for form in (
        "", "_complex", "_full_group", "_single_equal_split", "_single_equal_split_complex", "_single_equal_split_full_group",
        "_single_unequal_split", "_single_unequal_split_complex", "_single_unequal_split_full_group")
]  # fmt: skip
OF_MPI_IN_SUBGROUPS = ["test_all_to_all_group", "test_all_to_all_single_equal_split_group", "test_all_to_all_single_unequal_split_group"]


def check_those_of_mpi(results, size):
    names = OF_MPI + (OF_MPI_IN_SUBGROUPS if size > 2 else [])
    check([(name, results.get(name, {"what": "missing"})["what"]) for name in names], [(name, "passed") for name in names],
          "tests that are MPI's")  # fmt: skip


def run(backend, size, patterns=(), **more):
    """One result for each test, by name: what came of it, why, how long it took. `more` of the environment."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "BACKEND": backend, "WORLD_SIZE": str(size), "TEMP_DIR": folder, **more}
        with open(f"wheel_{backend}_{size}.log", "w") as log:
            done = subprocess.run([sys.executable, CASES, *patterns], stdout=subprocess.PIPE, stderr=log, text=True,
                                  env=env, timeout=1500 * SLOWNESS)  # fmt: skip
    if done.returncode != 0:
        raise AssertionError(f"{CASES.name} ended with {done.returncode}; see wheel_{backend}_{size}.log")
    return {row["test"]: row for row in map(json.loads, done.stdout.splitlines())}


def count(results):
    kinds = collections.Counter(row["what"] for row in results.values())
    return f"{kinds['passed']:4} passed {kinds['failed']:4} failed {kinds['skipped']:4} skipped"


def why(row):
    lines = [line.strip() for line in row["why"].splitlines() if "Error" in line or row["what"] == "skipped"]
    return lines[-1][:160] if lines else ""


def unexpected(results):
    """Tests that failed without a reason that is known."""
    return {name: row for name, row in results.items() if row["what"] == "failed" and name not in REFUSED}


def check_all_passed(results):
    failed = unexpected(results)
    for name, row in failed.items():
        print(f"{name}:\n{row['why']}")
    check(sorted(failed), [], "tests that failed")


def compare(by_backend, size):
    """The table for one number of ranks."""
    choir, gloo = by_backend["choir"], by_backend["gloo"]
    for backend, results in by_backend.items():
        print(f"{size} ranks, {backend:5} {count(results)}")
    for name in sorted(set(choir) | set(gloo)):
        rows = [results.get(name, {"what": "missing", "why": ""}) for results in (choir, gloo)]
        if rows[0]["what"] != rows[1]["what"] or rows[0]["what"] == "failed":
            print(f"  {name}: choir {rows[0]['what']}, gloo {rows[1]['what']}")
            for row, label in zip(rows, ("choir", "gloo")):
                if row["what"] != "passed" and why(row):
                    print(f"      {label}: {REFUSED.get(name) if row['what'] == 'failed' and name in REFUSED else why(row)}")
    reasons = collections.Counter(why(row) for row in choir.values() if row["what"] == "skipped")
    for reason, number in reasons.most_common():
        print(f"  {number:4} skipped: {reason}")
