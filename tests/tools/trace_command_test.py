#!/usr/bin/env python3
"""trace_command_test.py - choir trace: who is to blame, in its first line, from records that the library wrote."""
# seconds: 60
import json
import os
import pathlib
import re
import subprocess
import sys

BUILD = pathlib.Path(os.environ["CHOIR_TEST_BUILD"])
CHOIR = BUILD / "bin/choir"
failures = []


def check(condition, *told):
    if not condition:
        failures.append(" ".join(map(str, told)))


def trace(*args):
    return subprocess.run([CHOIR, "trace", *args], capture_output=True, text=True)


def job(scenario):
    """The records of a made-up job, one file for each rank."""
    folder = pathlib.Path(scenario)
    folder.mkdir(exist_ok=True)
    subprocess.run([BUILD / "bin/tests/flight_dumps", scenario, folder], check=True)
    return sorted(folder.glob("rank_*.json"))


OP = 'all_reduce number 17 of group "world" (1024 Float)'
CALLED = 'called {} as number 17 of group "world", where ranks 0, 1 and 3 called {}'
FIRST_LINES = {
    "well": "nothing wrong is to be seen: the calls of 4 ranks agree",
    "everything": "nothing wrong is to be seen: the calls of 4 ranks agree",
    "skipped": f"rank 2 did not call {OP}, in which ranks 0, 1 and 3 wait since 12.3 s",
    "skipped-long-ago": 'rank 2 did not call all_reduce number 17 of group "world" (77 Float) but went on to '
                        "broadcast (5 Float, root 0), which ranks 0, 1 and 3 completed",
    "skipped-and-on": "rank 2 " + CALLED.format("broadcast (5 Float, root 0)", "all_reduce (1024 Float, sum)"),
    "size": "rank 2 " + CALLED.format("all_reduce (1000 Float, sum)", "all_reduce (1024 Float, sum)"),
    "type": "rank 2 " + CALLED.format("all_reduce (1024 BFloat16, sum)", "all_reduce (1024 Float, sum)"),
    "root": "rank 2 " + CALLED.format("broadcast (5 Float, root 3)", "broadcast (5 Float, root 0)"),
    "operation": "rank 2 " + CALLED.format("broadcast (1024 Float, root 0)", "all_reduce (1024 Float, sum)"),
    "failed": f"ranks 0, 1, 2 and 3 called {OP} alike, but it failed after 6.2 s (CHOIR_ERR_TIMEOUT)",
    # 0 and 1 wait for 2, which waits for 3: the one that waits for nobody is told first
    "chain": 'rank 3 did not call all_reduce number 17 of group "half" (10 BFloat16), in which rank 2 waits since 12.3 s',
    "unsent": 'rank 2 has not sent what rank 1 waits for in recv from rank 2 number 1 of group "world" (64 Float) '
              "with tag 9, since 12.3 s",
    "unreceived": 'rank 2 has not received what rank 1 sends in send to rank 2 number 1 of group "world" (64 Float) '
                  "with tag 9, since 12.3 s",
    "transfer-size": "rank 2 receives 60 Float, but rank 1 sends 64 Float in send to rank 2 number 1 of group "
                     '"world" (64 Float) with tag 9, since 12.3 s',
    "lost-ring": 'rank 2 did not call all_reduce number 1017 of group "world" (1024 Float) (its last was number 16), '
                 "which ranks 0, 1 and 3 completed",
}



def steady(text):
    """The made-up operations began 12.3 s before the records were written, or a little more on a busy machine."""
    return re.sub(r"since 1[2-9]\.\d s", "since 12.3 s", text)


for scenario, line in FIRST_LINES.items():
    files = job(scenario)
    done = trace(*files)
    lines = steady(done.stdout).splitlines()
    check(done.returncode == 0 and done.stderr == "", scenario, done.stderr)
    check(lines[:1] == [line], f"{scenario}: {lines[:1]} is not {line!r}")
    check(sum(l.startswith("rank ") and ": " in l for l in lines) >= 4, scenario, "does not tell of each rank", lines)

    told = json.loads(trace("--json", *files).stdout)
    check(told["wrong"] == (not line.startswith("nothing")), scenario, told)
    check([r["rank"] for r in told["ranks"]] == [0, 1, 2, 3], scenario, told["ranks"])
    if told["wrong"]:
        check(steady(told["findings"][0]["text"]) == line, scenario, told["findings"][0])

first = json.loads(trace("--json", *job("skipped")).stdout)["findings"][0]
check((first["kind"], first["operation"], first["number"], first["group"], first["culprits"], first["others"])
      == ("behind", "all_reduce", 17, "world", [2], [0, 1, 3]), first)
check(12300 <= first["age_ms"] < 22300, first)

# Files in any order; without that of the one who is to blame; and all ranks in one file.
files = job("skipped")
check(trace(*reversed(files)).stdout == trace(*files).stdout, "the order of the files matters")
line = steady(trace(*files[:2], files[3]).stdout).splitlines()[0]
check(line == f"rank 2 left no record: nobody knows whether it called {OP}, in which ranks 0, 1 and 3 wait since 12.3 s",
      line)

# A rank that wrote its record before the others called has done nothing wrong.
early = json.loads(files[2].read_text())
early["choir"]["time_ns"] -= 60 * 10**9
pathlib.Path("early.json").write_text(json.dumps(early))
line = trace(files[0], files[1], "early.json", files[3]).stdout.splitlines()[0]
check(line.startswith("nothing wrong"), line)

# What PyTorch writes has no part of ours: ranks come from the names, groups from pg_config.
for rank, path in enumerate(files):
    document = json.loads(path.read_text())
    del document["choir"]
    for entry in document["entries"]:
        del entry["rank"]
    pathlib.Path(f"torch_{rank}").write_text(json.dumps(document))
line = trace(*(f"torch_{r}" for r in range(4))).stdout.splitlines()[0]
check(line.startswith(f"rank 2 did not call {OP}, in which ranks 0, 1 and 3 wait since"), line)

# Files that are none: one line, exit code 1.
whole = files[0].read_text()
for name, text, word in (("empty", "", "a value is expected"), ("cut", whole[:len(whole) // 2], "at byte"),
                         ("none", "[]", "no \"entries\""), ("deep", "[" * 1000, "64 levels"),
                         ("more", whole + "x", "behind the end")):
    pathlib.Path(name).write_text(text)
    done = trace(name)
    check(done.returncode == 1 and done.stdout == "" and word in done.stderr and done.stderr.count("\n") == 1,
          name, done.returncode, done.stderr)
done = trace("not-there")
check(done.returncode == 1 and "not-there: No such file" in done.stderr, done.stderr)

# Called wrongly: exit code 2, one line.
for args, word in (([], "a file is missing"), (["--bogus"], "--bogus"), (["--json"], "a file is missing")):
    done = trace(*args)
    check(done.returncode == 2 and word in done.stderr and done.stderr.count("\n") == 1, args, done.stderr)
check(trace("--help").stdout.startswith("usage: choir trace"), "--help")

print("\n".join(failures))
sys.exit(1 if failures else 0)
