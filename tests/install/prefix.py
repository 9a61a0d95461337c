"""prefix.py - what the install tests share: an installed copy in the test's own folder, and run()."""
import os
import pathlib
import shutil
import subprocess
import sys

SOURCE = pathlib.Path(os.environ["CHOIR_TEST_SOURCE"])
BUILD = pathlib.Path(os.environ["CHOIR_TEST_BUILD"])
EXAMPLE = SOURCE / "examples/02_allreduce/allreduce.c"
EXAMPLE_PRINTS = "rank 0 of 1: 1 2 3 4\n"


def skip(reason):
    print(f"skip: {reason}")
    sys.exit(77)


def need(tool):
    if not shutil.which(tool):
        skip(f"{tool} is not installed")


def run(*command, **options):
    """Run, fail the test loudly if the command fails, return what it prints."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        print("failed:", *command)
        print(done.stdout + done.stderr)
        sys.exit(1)
    return done.stdout


def install(where="installed"):
    prefix = pathlib.Path.cwd() / where
    run("cmake", "--install", BUILD, "--prefix", prefix)
    return prefix


def check(condition, message):
    if not condition:
        print("wrong:", message)
        sys.exit(1)


def check_example(program, env=None):
    printed = run(program, env={**os.environ, **(env or {})})
    check(printed == EXAMPLE_PRINTS, f"{program} printed {printed!r}, expected {EXAMPLE_PRINTS!r}")
