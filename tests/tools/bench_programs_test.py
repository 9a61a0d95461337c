#!/usr/bin/env python3
"""bench_programs_test.py - the benchmarks that show one figure each say it, and what they need."""
# timeout: 120
import os
import pathlib
import re
import shutil
import subprocess
import sys

SOURCE = pathlib.Path(os.environ["CHOIR_TEST_SOURCE"])
BUILD = pathlib.Path(os.environ["CHOIR_TEST_BUILD"])
CHOIR, BENCH = BUILD / "bin/choir", BUILD / "bin/bench"
failures = []
if not (BENCH / "types").exists():
    print("skip: this build has no benchmarks")
    sys.exit(77)


def check(condition, *told):
    if not condition:
        failures.append(" ".join(map(str, told)))


def says(pattern, *command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, stdin=subprocess.DEVNULL)
    check(done.returncode == 0 and re.search(pattern, done.stdout), pattern, "not in", done)
    return done.stdout


says(r"allreduce of +65536 bytes, 2 ranks: bf16 \d\.\d+ of f32's rate \[.*f16 \d\.\d+ of f32's rate \[.* f32 [\d.]+ us",
     CHOIR, "run", "-n", 2, "--no-prefix", BENCH / "types", 65536)
says(r"computing [\d.]+ ms, both [\d.]+ ms: -?\d+ % hidden \[", CHOIR, "run", "-n", 2, "--bind", "none", "--no-prefix", BENCH / "overlap", 1)
says(r"flight record: [\d.]+ ns an operation", BENCH / "costs", "flight")
for program in ("types", "overlap"):
    done = subprocess.run([CHOIR, "run", "-n", "1", "--no-prefix", BENCH / program, "0"], capture_output=True, text=True)
    check(done.returncode == 2 and "usage" in done.stderr, done)
if shutil.which("valgrind") and shutil.which("strace"):
    told = says(r"allocations: none", SOURCE / "bench/costs/count", "--build", BUILD)
    counts = re.search(r"mismatches: (\d+) instructions to say what is called, ([\d.]+) to write", told)
    check(counts and int(counts[1]) > 10 and float(counts[2]) > 0, "counted nothing", told)
    calls = [int(n) for n in re.findall(r"process \d of 2: (\d+)", told)]
    check(len(calls) == 2 and max(calls) < 1000, "a system call in every operation", told)
done = subprocess.run([SOURCE / "bench/model", "--sizes", "4K"], capture_output=True, text=True)
check(done.returncode == 2 and "--sizes" in done.stderr, done)

print("\n".join(failures) or "each says its figure")
sys.exit(1 if failures else 0)
