#!/usr/bin/env python3
"""examples_test.py - every example runs, alone and with several ranks, and says what its page promises."""
# timeout: 180
import os
import pathlib
import re
import subprocess
import sys
import time

SOURCE, BUILD = pathlib.Path(os.environ["CHOIR_TEST_SOURCE"]), pathlib.Path(os.environ["CHOIR_TEST_BUILD"])

# name: (ranks it is run with, what it must print)
EXPECTED = {
    "say_hello": ((1, 4), r"{n} ranks, {n} of them here"),
    "allreduce": ((1, 4), r"rank 0 of {n}: {n} {n2} {n3} {n4}"),
    "grid": ((2, 4, 6), r"rank 1: row 0 sums to 1, column 1 to "),
    "send_receive": ((1, 2, 5), r"rank 0 is between "),
    "data_parallel": ((1, 4), r"loss fell from \d\.\d+ to 0\.0\d+; all {n} ranks have the same weights \([0-9a-f]{{16}}\)"),
    "mean": ((1,), r"37 74 111 148"),
}
SECONDS = {"data_parallel": 20}  # seconds promised

# Those in Python need an interpreter with numpy or torch: which test finds one and runs them.
RUN_BY = {
    "kmeans": "tests/python/numpy_example_test.py",
    "train_ddp": "tests/torch/training_examples_test.py",
    "train_fsdp2": "tests/torch/training_examples_test.py",
}


def check(condition, *text):
    if not condition:
        sys.exit("FAILED: " + " ".join(map(str, text)))


def find(ending, expected):
    """{name: path}; each in a folder of its own, with a page."""
    sources = {p.stem: p for p in sorted(SOURCE.glob("examples/*/*" + ending))}
    check(set(sources) == set(expected), "examples", sorted(sources), "expected", sorted(expected))
    for source in sources.values():
        check(re.fullmatch(r"\d\d_\w+", source.parent.name), source, "is not in a folder NN_name")
        check(source.name in (source.parent / "README.md").read_text(), "its page does not speak of", source)
        check(f"(examples/{source.parent.name})" in (SOURCE / "README.md").read_text(), "README.md does not speak of", source)
    return sources


for name, source in find(".py", RUN_BY).items():
    check(source.name in (SOURCE / RUN_BY[name]).read_text(), RUN_BY[name], "does not run", source)
for name in find(".c", EXPECTED):
    ranks, pattern = EXPECTED[name]
    for n in ranks:
        command = [BUILD / "bin/examples" / name]
        if n > 1:
            command = [BUILD / "bin/choir", "run", "-n", n, *command]
        began = time.monotonic()
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
        took = time.monotonic() - began
        check(done.returncode == 0, name, n, "ranks: exit code", done.returncode, done.stdout, done.stderr)
        wanted = pattern.format(n=n, n2=2 * n, n3=3 * n, n4=4 * n)
        check(re.search(wanted, done.stdout), name, n, "ranks printed", done.stdout, "expected", wanted)
        check(took < SECONDS.get(name, 60), name, n, f"ranks took {took:.1f} s")
