#!/usr/bin/env python3
"""compare_test.py - bench/compare: every contender that is built does every operation, rightly; table, JSON and report."""
# timeout: 240
import html.parser
import json
import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as ET

SOURCE = pathlib.Path(os.environ["CHOIR_TEST_SOURCE"])
BUILD = pathlib.Path(os.environ["CHOIR_TEST_BUILD"])
OPERATIONS = ["allreduce", "broadcast", "reduce", "allgather", "reducescatter", "alltoall", "gather", "scatter", "barrier", "sendrecv"]
PEERS = BUILD / "bin/bench/peers"
failures = []
if not (PEERS / "choir").exists():
    print("skip: this build has no benchmarks")
    sys.exit(77)
built = {path.name for path in PEERS.iterdir()}


def compare(*args):
    return subprocess.run([SOURCE / "bench/compare", "--build", BUILD, *args], capture_output=True, text=True, stdin=subprocess.DEVNULL)


def check(condition, *told):
    if not condition:
        failures.append(" ".join(map(str, told)))


def check_row(row, op, ranks):
    check((row["op"], row["ranks"], row["fresh"], row["whole"], row["blocks"]) == (op, ranks, True, False, 2), row)
    check(set(row["us"]) == built and set(row["ratio"]) == built - {"choir"}, op, row)
    check(set(row["wrong"]) == built and not any(row["wrong"].values()), op, row)
    for spread in [*row["us"].values(), *row["ratio"].values()]:
        check(0 < spread["p10"] <= spread["p50"] <= spread["p90"], op, row)
    rivals = built - {"choir", "before", "limit"}
    if rivals:
        # Two may be as fast.
        check(row["best"]["name"] in rivals and row["us"][row["best"]["name"]]["p50"] == min(row["us"][name]["p50"] for name in rivals), op, row)
    check({"cpu", "processors", "load", "steal_percent", "others_busy", "quiet"} <= set(row["machine"]), row)


check({"choir", "limit"} <= built, built)
# All operations, all contenders, a size that is no multiple of anything; the report has a card for each.
done = compare("all", "-n", "2", "--sizes", "5003,8,5003", "--blocks", "2", "--ms", "1", "--out", "report.html")
check(done.returncode == 0, done)
rows = [json.loads(line) for line in pathlib.Path("report.json").read_text().splitlines()]
check([(r["op"], r["bytes"]) for r in rows] == [(op, size) for op in OPERATIONS for size in ([0] if op == "barrier" else [8, 5003])], rows)
for row in rows:
    check_row(row, row["op"], 2)
page = pathlib.Path("report.html").read_text()
drawings = re.findall(r"<svg.*?</svg>", page, re.S)
check(len(drawings) == len(OPERATIONS) and "http" not in page and "src=" not in page, len(drawings))
for drawing in drawings:
    ET.fromstring(drawing)
    check("nan" not in drawing and "inf" not in drawing, drawing)
    width, height = map(float, re.search(r"viewBox='0 0 (\d+) (\d+)'", drawing).groups())
    points = [tuple(map(float, point.split(","))) for line in re.findall(r"points='([^']+)'", drawing) for point in line.split()]
    check(all(0 <= x <= width and 0 <= y <= height for x, y in points), "outside the plot:", points)
html.parser.HTMLParser().feed(page)

# One operation: a table, then JSON. Ranks that outnumber processors, or do not divide the size, are no trouble.
done = compare("allgather", "-n", "3", "--sizes", "16:256:16", "--blocks", "2", "--ms", "1")
table = [line for line in done.stdout.splitlines() if not line.startswith(("{", "#"))]
found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
check(done.returncode == 0 and len(table) == 2 and [row["bytes"] for row in found] == [16, 256], done)
for row in found:
    check_row(row, "allgather", 3)
done = compare("allreduce", "-n", "2", "--sizes", "64", "--blocks", "1", "--ms", "1", "--with", "limit", "--hot", "--json")
row = json.loads(done.stdout) if done.returncode == 0 else {}
check(set(row.get("us", {})) == {"choir", "limit"} and row.get("best", 1) is None and row["fresh"] is False, done)
# A round of a barrier with the barrier before it is two of them.
done = compare("barrier", "-n", "2", "--blocks", "9", "--ms", "1", "--with", "limit", "--hot", "--table", "--whole")
check(done.returncode == 0 and "with the barrier before it" in done.stdout, done)

# Open MPI is told that hardware threads are processors too, where there are not cores enough, and that ranks outnumber them.
sys.dont_write_bytecode = True
sys.path.insert(0, str(SOURCE / "bench/peers"))
import contenders  # noqa: E402
for cores, processors, ranks, told in ((1, 2, 2, "--use-hwthread-cpus"), (2, 2, 2, None), (2, 4, 2, None), (2, 4, 3, "--use-hwthread-cpus"), (1, 2, 3, "--oversubscribe")):
    contenders.cores, contenders.processors = lambda: cores, lambda: processors
    command = contenders.commands("openmpi", BUILD, ranks, "folder", "bound")[0]
    check([word for word in command if word in ("--use-hwthread-cpus", "--oversubscribe")] == ([told] if told else []), cores, processors, ranks, command)

# Called wrongly.
for args, word in (([], "OP"), (["allredcue"], "allredcue"), (["allreduce", "--sizes", "8X"], "--sizes"), (["allreduce", "-n", "two"], "-n"),
                   (["allreduce", "-n", "0"], "at least 1"), (["allreduce", "--sizes", "8:64:1"], "--sizes"), (["allreduce", "--sizes", "0"], "--sizes"),
                   (["allreduce", "--sizes", ""], "--sizes"), (["allreduce", "-n", "2,4"], "one number of ranks"), (["allreduce", "--ms", "-1"], "--ms"),
                   (["allreduce", "--ms", "0"], "--ms"), (["allreduce", "--ms", "nan"], "--ms"), (["allreduce", "--ms", "inf"], "--ms"),
                   (["allreduce", "--blocks", "0"], "--blocks"), (["allreduce", "--json", "--table"], "not allowed with")):
    done = compare(*args)
    check(done.returncode == 2 and word in done.stderr and not done.stdout, args, done)
done = compare("allreduce", "--with", "nccl")
check(done.returncode == 1 and "no such contender" in done.stderr, done)
done = compare("allreduce", "--build", "nowhere")
check(done.returncode == 1 and "run make first" in done.stderr and "libgloo-dev" in done.stderr, done)

print("\n".join(failures) or f"{', '.join(sorted(built))} compare")
sys.exit(1 if failures else 0)
