#!/usr/bin/env python3
# timeout: 120
"""Check the models of the doorbell and of a full ring exhaustively; variants without the order must be refuted."""
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).parent

# (model, definitions, is the protocol sound, why this row)
ROWS = [
    ("doorbell", "-DORDER=MEMBARRIER -DSLEEPERS=1", True, "two posters, one sleeper, the sleeper orders"),
    ("doorbell", "-DORDER=FENCE -DSLEEPERS=1", True, "two posters, one sleeper, both sides fence"),
    ("doorbell", "-DORDER=MEMBARRIER -DSLEEPERS=2 -DPOSTS=2", True, "two sleepers share a bell"),
    ("doorbell", "-DORDER=FENCE -DSLEEPERS=2 -DPOSTS=2", True, "two sleepers share a bell, both sides fence"),
    ("doorbell", "-DORDER=NONE", False, "no order at all loses a wake-up"),
    ("doorbell", "-DORDER=POSTER", False, "a fence on the poster's side alone is not enough"),
    ("doorbell", "-DORDER=SLEEPER", False, "a fence on the sleeper's side alone is not enough"),
    ("doorbell", "-DORDER=FENCE -DSLEEPERS=2 -DPOSTS=2 -DBELL=COUNTER", False, "one sleeper swallows the other's ring"),
    ("full_ring", "-DFENCES=BOTH", True, "who fills a ring is told of room"),
    ("full_ring", "-DFENCES=BOTH -DROOM=3", True, "the same, when what is written does not fit evenly"),
    ("full_ring", "-DFENCES=NONE", False, "it is not, if the ring is filled in the last look"),
    ("full_ring", "-DFENCES=WRITER", False, "a fence on the writer's side alone is not enough"),
    ("full_ring", "-DFENCES=READER", False, "a fence on the reader's side alone is not enough"),
]


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def errors_of(model, definitions):
    """How many errors pan finds; also that the search was complete."""
    run("spin", "-a", *definitions.split(), str(HERE / f"{model}.pml"))
    run("gcc", "-O2", "-w", "-DSAFETY", "-o", "pan", "pan.c")
    out = run("./pan", "-m100000")
    found = re.search(r"errors: (\d+)", out)
    states = re.search(r"(\d+) states, stored", out)
    if found is None or "max search depth too small" in out or "Search not completed" in out and found[1] == "0":
        sys.exit(f"pan did not finish:\n{out}")
    return int(found[1]), int(states[1])


def main():
    if shutil.which("spin") is None:
        print("skip: spin is not installed (Debian package spin)")
        return 77
    failed = 0
    for model, definitions, sound, why in ROWS:
        errors, states = errors_of(model, definitions)
        right = (errors == 0) == sound
        failed += not right
        print(f"{'ok  ' if right else 'FAIL'} {model} {definitions}: {errors} errors, {states} states ({why})")
    return 1 if failed else 0


sys.exit(main())
