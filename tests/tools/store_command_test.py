#!/usr/bin/env python3
"""store_command_test.py - choir store: every verb, over a file and over a server; exit codes; manners."""
# timeout: 60
import json
import os
import pathlib
import subprocess
import sys
import time

CHOIR = pathlib.Path(os.environ["CHOIR_TEST_BUILD"]) / "bin/choir"
FILE = f"file://{pathlib.Path.cwd()}/store"
failures = []


def store(*args, input=b"", env=None):
    return subprocess.run([CHOIR, "store", *args], capture_output=True, input=input,
                          env={**os.environ, **(env or {})})


def expect(args, out=b"", code=0, says="", input=b""):
    done = store(*args, input=input)
    text = done.stderr.decode()
    if done.returncode != code or done.stdout != out or says not in text or (code < 1 and text):
        failures.append(f"{args}: exit code {done.returncode}, expected {code}; printed {done.stdout}, "
                        f"expected {out}; said {text!r}, expected {says!r}")


# Called wrongly: exit code 2, one line.
for args in ([], ["bogus", FILE], ["get"], ["get", FILE], ["get", FILE, "a", "b"], ["set", FILE, "k"],
             ["count", FILE, "x"], ["get", FILE, "k", "--bogus"], ["get", FILE, "k", "--timeout"],
             ["get", FILE, "k", "--timeout", "soon"], ["get", FILE, "k", "--timeout=-1"], ["add", FILE, "n", "1x"],
             ["barrier", FILE, "b", "0"]):
    done = store(*args)
    if done.returncode != 2 or done.stderr.count(b"\n") != 1 or done.stdout != b"":
        failures.append(f"{args}: {done}")

# Values.
expect(["set", FILE, "k", "v"])
expect(["get", FILE, "k"], b"v")
expect(["append", FILE, "k", "w"])
expect(["get", "--json", FILE, "k"], b'"vw"\n')
expect(["set", FILE, "bytes", "-"], input=bytes(range(256)) * 300)
expect(["get", FILE, "bytes"], bytes(range(256)) * 300)
expect(["set", FILE, "", "of the empty key"])
expect(["get", FILE, ""], b"of the empty key")
expect(["set", FILE, "--", "--key", "--value"])
expect(["get", FILE, "--", "--key"], b"--value")
expect(["add", FILE, "n", "-5"], b"-5\n")
expect(["add", FILE, "n", "7"], b"2\n")
expect(["add", FILE, "k", "1"], code=1, says="not a number")
expect(["compare-set", FILE, "c", "", "new"], b"new")
expect(["compare-set", FILE, "c", "other", "newer"], b"new")
expect(["check", FILE, "k", "c"])
expect(["check", FILE, "k", "nothing"], code=1)
expect(["check", FILE, "k", "nothing", "--json"], b"false\n", code=1)
expect(["count", FILE], b"6\n")
expect(["list", FILE], b"\n--key\nbytes\nc\nk\nn\n")
expect(["delete", FILE, "c"])
expect(["delete", FILE, "c"], code=1)
expect(["delete", FILE, "bytes", "--json"], b"true\n")
expect(["set", FILE, "k\n\"\x7f", "v", "--prefix", "P"])
expect(["list", FILE, "--prefix=P"], b"k\n\"\x7f\n")
keys = json.loads(store("list", FILE, "--json").stdout)
if keys != ["", "--key", "P/k\n\"\x7f", "k", "n"]:
    failures.append(f"list --json: {keys}")

# Queues, waits, deadlines.
expect(["push", FILE, "q", "one"])
expect(["push", FILE, "q", "two"])
expect(["length", FILE, "q"], b"2\n")
expect(["pop", FILE, "q"], b"one")
expect(["try-pop", FILE, "q"], b"two")
expect(["try-pop", FILE, "q"], code=1, says="queue is empty")
expect(["wait", FILE, "k", "n"])
expect(["barrier", FILE, "b", "1"])
for args in (["get", FILE, "nothing"], ["wait", FILE, "k", "nothing"], ["pop", FILE, "q"], ["barrier", FILE, "b2", "2"]):
    began = time.monotonic()
    expect([*args, "--timeout", "0.2"], code=124, says="deadline")
    if not 0.2 <= time.monotonic() - began < 10:
        failures.append(f"{args}: {time.monotonic() - began} s for a time-out of 0.2")
expect(["get", FILE, "never", "--timeout", "0.0000001"], code=124, says="deadline")  # not the default

# One waits for what another one sets.
waiting = subprocess.Popen([CHOIR, "store", "get", FILE, "late", "--timeout", "20"], stdout=subprocess.PIPE)
expect(["set", FILE, "late", "at last"])
if waiting.communicate()[0] != b"at last" or waiting.returncode != 0:
    failures.append("a waiting get was not served")

# What cannot be opened.
expect(["get", "carrier-pigeon://x", "k"], code=1, says="there are hash://")
expect(["get", "env://", "k"], code=1, says="CHOIR_STORE is not set")
expect(["get", "tcp://127.0.0.1:1", "k", "--timeout", "0.3"], code=124, says="127.0.0.1:1")
expect(["get", FILE, "k", "--token-file", "/nonexistent"], code=1, says="/nonexistent")

# The store of a run: its ranks reach it through env://, others need its token.
script = ('"$0" store set env:// from/$RANK "rank $RANK" && "$0" store wait env:// from/0 from/1 --timeout 20 && '
          '"$0" store get env:// from/$((1 - RANK)) && echo && '
          'CHOIR_TOKEN_FD= "$0" store get $CHOIR_STORE from/0 --timeout 5 2>/dev/null; test $? = 1')
done = subprocess.run([CHOIR, "run", "-n", "2", "--", "sh", "-c", script, CHOIR], capture_output=True, text=True)
if done.returncode != 0 or not all(f"{1 - r}: rank {r}" in done.stdout for r in (0, 1)):
    failures.append(f"under choir run: {done}")

print("\n".join(failures))
sys.exit(1 if failures else 0)
