#!/usr/bin/env python3
"""explain_command_test.py - choir explain: words, drawing, CHOIR_ALGO, and manners when called wrongly."""
import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as ET

SOURCE = pathlib.Path(os.environ["CHOIR_TEST_SOURCE"])
CHOIR = pathlib.Path(os.environ["CHOIR_TEST_BUILD"]) / "bin/choir"
OPERATIONS = ["allreduce", "broadcast", "reduce", "allgather", "reduce_scatter", "gather", "scatter", "alltoall", "barrier"]
failures = []


def explain(*args, algo=None):
    env = {k: v for k, v in os.environ.items() if k != "CHOIR_ALGO"}
    return subprocess.run([CHOIR, "explain", *args], capture_output=True, text=True,
                          env=env if algo is None else {**env, "CHOIR_ALGO": algo})


def facts(done):
    head = done.stdout.split("\n\n")[0].splitlines()
    return {"head": head[0] if head else "", **dict(line.split(None, 1) for line in head[1:])}


def check(condition, *told):
    if not condition:
        failures.append(" ".join(map(str, told)))


# Called wrongly: exit code 2, one line on standard error, nothing on standard output.
for args, word in ((["allreduce", "--bogus"], "--bogus"), ([], "operation"), (["allredcue"], "there are allreduce"),
                   (["allreduce", "broadcast"], "broadcast"), (["allreduce", "--ranks"], "needs a value"),
                   (["allreduce", "--ranks", "0"], '"0"'), (["allreduce", "--ranks", "257"], "257"),
                   (["allreduce", "--bytes", "-1"], '"-1"'), (["allreduce", "--bytes", "1X"], '"1X"'),
                   (["allreduce", "--bytes", ""], '""'), (["allreduce", "--bytes", "99999999999G"], "G"),
                   (["allreduce", "--type", "f33"], "f33"), (["allreduce", "--rank", "4"], "rank 4"),
                   (["broadcast", "--root", "9"], "root 9"), (["allreduce", "--algo", "rign"], "it has inline"),
                   (["allreduce", "--algo", "inline"], "does not fit"),
                   (["allreduce", "--algo", "one-shot", "--apart"], "share memory"),
                   (["allgather", "--algo", "recursive-doubling", "--ranks", "6"], "number of ranks")):
    done = explain(*args)
    check(done.returncode == 2 and done.stderr.count("\n") == 1 and done.stdout == "" and word in done.stderr, args, done)

# Every operation, by every algorithm it names, for some numbers of ranks, in words and drawn.
for operation in OPERATIONS:
    for ranks in ("1", "2", "5"):
        for apart in ([], ["--apart"]):
            done = explain(operation, "--ranks", ranks, *apart)
            told = facts(done)
            check(done.returncode == 0 and done.stderr == "" and told["head"].startswith(operation), operation, ranks, done)
            check(set(told) >= {"algorithm", "why", "others", "moves", "messages", "waits", "room"}, operation, told)
            check(done.stdout.count("\nrank ") == int(ranks), operation, ranks, done.stdout)
            drawn = explain(operation, "--ranks", ranks, *apart, "--svg", "-")
            root = ET.fromstring(drawn.stdout)
            check(drawn.returncode == 0 and root.tag.endswith("svg"), operation, drawn)
            lanes = [t for t in root.iter("{http://www.w3.org/2000/svg}text") if re.fullmatch(r"rank \d+", t.text or "")]
            check(len(lanes) == int(ranks), operation, ranks, "lanes", len(lanes))
            check("href" not in drawn.stdout and "url(http" not in drawn.stdout, "the drawing needs others' files")

# The answer is right: a case with known numbers.
told = facts(explain("allreduce", "--ranks", "8", "--bytes", "1M"))
check(told["head"] == "allreduce of 1048576 bytes of f32, 8 ranks", told)
check(told["algorithm"].startswith("two-shot: ") and "its own share" in told["why"], told)
check(told["moves"] == "5111808 bytes per rank, 4.88 times the payload", told["moves"])
check(told["waits"].startswith("2 ") and told["messages"] == "0 sent per rank", told)
check("inline (no: the payload does not fit" in told["others"] and "ring" in told["others"], told["others"])
told = facts(explain("broadcast", "--ranks", "8", "--bytes", "1K", "--apart"))
check(told["algorithm"].startswith("binomial: ") and told["messages"] == "0 to 3 sent per rank", told)
check(told["waits"].startswith("3 "), told)

# 16-bit partial sums travel as f32: twice the bytes in the first half of a ring.
narrow = facts(explain("allreduce", "--algo", "ring", "--type", "bf16", "--ranks", "4", "--bytes", "4K"))
check(narrow["sends"].startswith(f"{3 * 1024 * 3} bytes"), narrow)
check("asked for" in narrow["why"], narrow)

# One rank's steps, in the words of the text form.
done = explain("allreduce", "--ranks", "3", "--bytes", "4K", "--rank", "1")
steps = [line.strip() for line in done.stdout.split("\nrank 1\n")[1].splitlines()]
check(steps == ["gate", "copy stage[1].0 b0 0/1 <- in b0 0/1", "post 1", "await 2 1", "await 0 1",
                "reduce out b0 0/1 <- stage[0].0 b0 0/1, in b0 0/1, stage[2].0 b0 0/1"], steps)

# Ranks against processors, and CHOIR_ALGO.
many = ["allreduce", "--ranks", "8", "--bytes", "32K"]
check("outnumber" in facts(explain(*many, "--processors", "2"))["why"], "crowded")
check(facts(explain(*many, "--processors", "8"))["algorithm"].startswith("two-shot"), "not crowded")
told = facts(explain(*many, algo="allreduce:ring:32K-max"))
check(told["algorithm"].startswith("ring") and "CHOIR_ALGO asks for it" in told["why"], told)
told = facts(explain(*many, algo="allreduce:ring:32769-max"))
check(not told["algorithm"].startswith("ring"), told)
told = facts(explain(*many, algo="allreduce:inline"))
check("not inline, which CHOIR_ALGO asks for: the payload does not fit" in told["why"], told)
done = explain(*many, algo="allreduce:rign")
check(done.returncode == 2 and "CHOIR_ALGO" in done.stderr and "it has inline" in done.stderr, done)

# A file that cannot be written is told, and is no usage error.
done = explain("allreduce", "--svg", "nowhere/x.svg")
check(done.returncode == 1 and "nowhere/x.svg" in done.stderr, done)
done = explain("allreduce", "--svg", "x.svg")
check(done.returncode == 0 and done.stdout == "" and ET.parse("x.svg"), done)
if os.path.exists("/dev/full"):
    done = explain("allreduce", "--svg", "/dev/full")
    check(done.returncode == 1 and "/dev/full" in done.stderr, done)

# The page knows every algorithm's operation, and the operations of the help text are all there are.
check(all(o in explain("--help").stdout for o in OPERATIONS), "operations in the help")

print("\n".join(failures) or "choir explain says what it should")
sys.exit(1 if failures else 0)
