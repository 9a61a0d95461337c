#!/usr/bin/env python3
"""simulate_command_test.py - choir simulate: 65,536 ranks in seconds, tables, drawing, JSON, machine files, and its manners."""
# timeout: 120
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ET

CHOIR = pathlib.Path(os.environ["CHOIR_TEST_BUILD"]) / "bin/choir"
OPERATIONS = ["allreduce", "broadcast", "reduce", "allgather", "reduce_scatter", "gather", "scatter", "alltoall", "barrier"]
LOG_STEP = {"recursive-doubling", "halving-doubling", "binomial", "bruck", "dissemination"}
failures = []


def simulate(*args):
    return subprocess.run([CHOIR, "simulate", *map(str, args)], capture_output=True, text=True)


def check(condition, *told):
    if not condition:
        failures.append(" ".join(map(str, told)))


for args, word in (([], "operation"), (["sum"], "sum"), (["allreduce", "reduce"], "reduce"), (["allreduce", "--bogus"], "--bogus"),
                   (["allreduce", "--ranks"], "needs a value"), (["allreduce", "--ranks", 1], '"1"'), (["allreduce", "--ranks", 65537], "65537"),
                   (["allreduce", "--bytes", "x"], '"x"'), (["reduce", "--ranks", 4, "--root", 4], "4 ranks"), (["allreduce", "--type", "f33"], "f33"),
                   (["allreduce", "--type=f33"], "f33"), (["allreduce", "--json=1"], "--json=1"), (["allreduce", "--json", "--svg", "-"], "standard output")):
    done = simulate(*args)
    check(done.returncode == 2 and done.stderr.count("\n") == 1 and done.stdout == "" and word in done.stderr, args, done)
done = simulate("allreduce", "--machine", "nowhere")
check(done.returncode == 1 and "nowhere" in done.stderr, done)
pathlib.Path("bad").write_text("wait_us 1\nwhat 3\n")
done = simulate("allreduce", "--machine", "bad")
check(done.returncode == 2 and "line 2" in done.stderr and "what" in done.stderr, done)

pathlib.Path("nul").write_bytes(b"\0wait_us 1\n")
done = simulate("allreduce", "--machine", "nul")
check(done.returncode == 2 and "NUL" in done.stderr and not done.stdout, done)
check(simulate("allreduce", "--ranks=8", "--bytes=4K", "--json").stdout == simulate("allreduce", "--ranks", 8, "--bytes", "4K", "--json").stdout, "--ranks=8")
# Where nothing costs anything there is nothing to compare with.
pathlib.Path("zero").write_text("".join(f"{name}_us 0\n" for name in ("call", "message", "host", "net", "wait")))
done = simulate("barrier", "--ranks", 4, "--machine", "zero")
check(done.returncode == 0 and "nan" not in done.stdout and re.search(r"dissemination +0\.00 +- +2 +0 +- ", done.stdout), done)

# Every operation from 2 to 65,536 ranks. Log-step algorithms are all played, never below the bound, and grow slowly.
for op in OPERATIONS:
    began = time.monotonic()
    done = simulate(op, "--ranks", 65536, "--bytes", "1M", "--json")
    check(time.monotonic() - began < 10, op, "took", time.monotonic() - began, "s")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    check(done.returncode == 0 and {r["ranks"] for r in rows} == {2 ** k for k in range(1, 17)}, op, done.returncode, done.stderr)
    for row in rows:
        check(row["bound_messages"] == row["ranks"].bit_length() - 1, row)
        if "us" in row:
            check(row["us"] >= row["bound_us"] * 0.9999, "below the bound:", row)
            check(row["messages"] >= row["bound_messages"] and row["sent"] >= row["bound_sent"] * 0.9999, "below the bound:", row)
        check("us" in row or row["algo"] not in LOG_STEP, "not played:", row)
    for algo in {r["algo"] for r in rows} & LOG_STEP:
        times = {r["ranks"]: r["us"] for r in rows if r["algo"] == algo}
        check(times[65536] < 16 * times[2], op, algo, times)

# The table names algorithms, the bound and the growth; a machine of one host has shared memory.
done = simulate("allreduce", "--ranks", 100)
check(done.returncode == 0 and "(bound)" in done.stdout and "halving-doubling" in done.stdout and "\n     100 " in done.stdout, done)
check("the ranks do not all share memory" in done.stdout, done)
pathlib.Path("host").write_text("# one host\nranks_per_host 0\nwait_us 0.5\npoint 4096 10 10\n")
done = simulate("allreduce", "--ranks", 8, "--bytes", "64K", "--machine", "host", "--json")
rows = {r["algo"]: r for r in map(json.loads, done.stdout.splitlines()) if r["ranks"] == 8}
check(rows["two-shot"].get("us", 0) > 1 and rows["two-shot"]["messages"] == 0 and "objection" in rows["inline"], rows)
done = simulate("allreduce", "--ranks", 4, "--bytes", 2 ** 64 - 1, "--machine", "host", "--json")
rows = {r["algo"]: r for r in map(json.loads, done.stdout.splitlines()) if r["ranks"] == 4}
check(done.returncode == 0 and rows["two-shot"]["us"] > 1e12, done)

done = simulate("allreduce", "--ranks", 4096, "--svg", "-")
drawing = ET.fromstring(done.stdout)
check(len(list(drawing.iter("{http://www.w3.org/2000/svg}polyline"))) > 3 and "nan" not in done.stdout and "inf" not in done.stdout, done.stdout[:300])
done = simulate("allreduce", "--ranks", 16, "--svg", "nowhere/x.svg")
check(done.returncode == 1 and "nowhere/x.svg" in done.stderr, done)

print("\n".join(failures) or "choir simulate plays")
sys.exit(1 if failures else 0)
