#!/usr/bin/env python3
"""bench_programs_test.py - the benchmarks that show one figure each say it, and what they need."""
# timeout: 120
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

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
told = says(r"computing [\d.]+ ms, both [\d.]+ ms: -?\d+ % hidden \[", CHOIR, "run", "-n", 2, "--bind", "none", "--no-prefix", BENCH / "overlap", 1)
check(all(float(ms) > 0 for ms in re.findall(r"([\d.]+) ms", told)), "took no time:", told)
says(r"3 ranks: [\d.]+ us \[", BENCH / "turns", 3)
# One that loses a rank ends, and says so.
turns = subprocess.Popen([BENCH / "turns", "3"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
children = pathlib.Path(f"/proc/{turns.pid}/task/{turns.pid}/children")
while len(children.read_text().split()) < 2 and turns.poll() is None:
    time.sleep(0.001)
os.kill(int(children.read_text().split()[0]), signal.SIGKILL)
told = turns.communicate(timeout=30)[1]
check(turns.returncode == 1 and "has ended in mid-run (signal 9)" in told, turns.returncode, told)
says(r"flight record: [\d.]+ ns an operation", BENCH / "costs", "flight")
for program in ("types", "overlap"):
    done = subprocess.run([CHOIR, "run", "-n", "1", "--no-prefix", BENCH / program, "0"], capture_output=True, text=True)
    check(done.returncode == 2 and "usage" in done.stderr, done)
if shutil.which("valgrind") and shutil.which("strace"):
    def count(source=SOURCE):
        return subprocess.run([source / "bench/costs/count", "--build", BUILD], capture_output=True, text=True, stdin=subprocess.DEVNULL)

    # Of two ranks that both stay awake for a while: others may take a processor away, and who then waits sleeps.
    most = None
    for _ in range(5):
        done = count()
        calls = [int(n) for n in re.findall(r"process \d of 2: (\d+)", done.stdout)]
        check(done.returncode == 0 and len(calls) == 2 and "allocations: none" in done.stdout, done)
        most = max(calls, default=0) if most is None else min(most, max(calls, default=0))
        if failures or most <= 3:
            break
    if len(os.sched_getaffinity(0)) > 1:
        check(most is not None and most <= 3, "system calls in 1000 operations:", most, done.stdout)
    counts = re.search(r"mismatches: ([\d.]+) instructions to say what is called, ([\d.]+) to write .*: ([\d.]+) for each of 1 peer", done.stdout)
    said, compared, each = map(float, counts.groups()) if counts else (0, 0, 0)
    check(said > 20 and compared > 4 and abs(said + compared - each) < 0.2, "counted nothing", done.stdout)
    check(each <= 40, "more than 40 instructions for a peer:", done.stdout)
    # What is to be counted must be there: lines that are elsewhere now are told, not left out.
    for path, word in (("src/engine/runner.c", "half_ended"), ("src/group/args.h", "op->counts"), ("src/engine/flags.h", "ch_all_are_through"),
                       ("src/engine/fused.c", "channel->check"), ("src/engine/flags.h", "ch_flag_compare")):
        tree = pathlib.Path("tree")
        for name in ("src/engine/runner.c", "src/engine/flags.h", "src/engine/fused.c", "src/group/args.h", "bench/costs/count"):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(SOURCE / name, tree / name)
        (tree / path).write_text((tree / path).read_text().replace(word, "elsewhere"))
        done = count(tree)
        check(done.returncode == 1 and path in done.stderr and word in done.stderr, word, done)
done = subprocess.run([SOURCE / "bench/model", "--sizes", "4K"], capture_output=True, text=True)
check(done.returncode == 2 and "--sizes" in done.stderr, done)

print("\n".join(failures) or "each says its figure")
sys.exit(1 if failures else 0)
