#!/usr/bin/env python3
# timeout: 120
"""Check the doorbell's model exhaustively; variants without the order must be refuted."""
import pathlib
import re
import shutil
import subprocess
import sys

MODEL = pathlib.Path(__file__).with_name("doorbell.pml")

# (definitions, is the protocol sound, why this row)
ROWS = [
    ("-DORDER=MEMBARRIER -DSLEEPERS=1", True, "two posters, one sleeper, the sleeper orders"),
    ("-DORDER=FENCE -DSLEEPERS=1", True, "two posters, one sleeper, both sides fence"),
    ("-DORDER=MEMBARRIER -DSLEEPERS=2 -DPOSTS=2", True, "two sleepers share a bell"),
    ("-DORDER=FENCE -DSLEEPERS=2 -DPOSTS=2", True, "two sleepers share a bell, both sides fence"),
    ("-DORDER=NONE", False, "no order at all loses a wake-up"),
    ("-DORDER=POSTER", False, "a fence on the poster's side alone is not enough"),
    ("-DORDER=SLEEPER", False, "a fence on the sleeper's side alone is not enough"),
    ("-DORDER=FENCE -DSLEEPERS=2 -DPOSTS=2 -DBELL=COUNTER", False, "one sleeper swallows the other's ring"),
]


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def errors_of(definitions):
    """How many errors pan finds; also that the search was complete."""
    run("spin", "-a", *definitions.split(), str(MODEL))
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
    for definitions, sound, why in ROWS:
        errors, states = errors_of(definitions)
        right = (errors == 0) == sound
        failed += not right
        print(f"{'ok  ' if right else 'FAIL'} {definitions}: {errors} errors, {states} states ({why})")
    return 1 if failed else 0


sys.exit(main())
