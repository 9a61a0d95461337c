"""ranks.py - what the tests of collectives share: starting ranks, reading what they say, ending them."""
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

SOURCE = pathlib.Path(os.environ.get("CHOIR_TEST_SOURCE", pathlib.Path(__file__).parents[2]))
BUILD = pathlib.Path(os.environ.get("CHOIR_TEST_BUILD", SOURCE / "build"))
TESTS = BUILD / "bin/tests"
CHOIR = BUILD / "bin/choir"
LONG = bool(os.environ.get("CHOIR_TEST_LONG"))
PROCESSORS = len(os.sched_getaffinity(0))
# What launchers of this process may have set must not reach the ranks.
OURS = ("CHOIR_", "RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "ROLE_", "MASTER_", "TORCHELASTIC_", "SLURM_", "OMPI_",
        "PMI", "MPI_")


def check(condition, text):
    if not condition:
        sys.exit(f"FAILED: {text}")


def environment(**variables):
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(OURS) or k.startswith(("CHOIR_TEST", "CHOIR_SPIN", "CHOIR_YIELD"))}
    env.update({k: str(v) for k, v in variables.items()})
    return env


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def run_ranks(size, *command, seconds=60, before=(), **more):
    """`choir run` to its end."""
    return subprocess.run([*before, str(CHOIR), "run", "-n", str(size), *map(str, command)], env=environment(),
                          capture_output=True, text=True, timeout=seconds, **more)


class Rank:
    """One rank (singer.c), started without a launcher, so that nobody ends the others when one dies."""

    def __init__(self, rank, size, port, *args, env=None):
        self.rank = rank
        self.lines, self.errors = [], []  # (time, text), as they came
        self.news = threading.Condition()
        self.process = subprocess.Popen(
            [str(TESTS / "singer"), *map(str, args)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
            env=environment(RANK=rank, WORLD_SIZE=size, MASTER_ADDR="127.0.0.1", MASTER_PORT=port, **(env or {})))
        self.readers = [threading.Thread(target=self.read, args=(stream, kept), daemon=True) for stream, kept in
                        ((self.process.stdout, self.lines), (self.process.stderr, self.errors))]
        for reader in self.readers:
            reader.start()

    def read(self, stream, kept):
        for line in stream:
            with self.news:
                kept.append((time.monotonic(), line.rstrip("\n")))
                self.news.notify_all()
        with self.news:
            self.news.notify_all()

    def wait_line(self, word, seconds=60, errors=False, after=0):
        """The first line, from number `after` on, that holds `word`: when it came, and the line."""
        until = time.monotonic() + seconds
        kept = self.errors if errors else self.lines
        with self.news:
            while True:
                for when, line in kept[after:]:
                    if word in line:
                        return when, line
                left = until - time.monotonic()
                if left <= 0 or not any(r.is_alive() for r in self.readers):
                    sys.exit(f"FAILED: rank {self.rank} does not say '{word}' within {seconds} s; it said "
                             f"{self.lines[-5:]} {self.errors[-5:]}")
                self.news.wait(min(left, 1))

    def end(self, seconds=60):
        """Its standard input ends: it stops with the others. What it said last, as JSON."""
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        return self.finished(seconds)

    def finished(self, seconds=60):
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            sys.exit(f"FAILED: rank {self.rank} does not end; it said {self.lines[-5:]} {self.errors[-5:]}")
        for reader in self.readers:
            reader.join(10)
        check(self.process.returncode == 0,
              f"rank {self.rank} ended with {self.process.returncode}: {self.lines[-5:]} {self.errors[-5:]}")
        return json.loads(self.lines[-1][1])


def start_ranks(size, *args, env=None):
    port = free_port()
    return [Rank(r, size, port, *args, env=env) for r in range(size)]
