#!/usr/bin/env python3
"""skipped_test.py - rank 2 of a real job leaves one all-reduce out: `choir trace` says so in its first line.

The records are those that the ranks left themselves: on demand while the others wait, when their time is up, or when
the ranks are found to call different things. PyTorch's analyser is asked about the same jobs in torch_flight_test.py.
"""
# timeout: 120
import re

from ranks import *

SKIPPED, MORE = 7, 3
LAST = SKIPPED + MORE  # the number of the one that rank 2 does not get to


def start(folder, timeout_ms, *more):
    os.mkdir(folder)
    return start_ranks(4, "skip", SKIPPED, timeout_ms, *more,
                       env={"CHOIR_TRACE_DIR": os.path.abspath(folder), "CHOIR_FR_SIGNAL": 1})


def wait_files(folder, ranks=range(4)):
    until = time.monotonic() + 30
    paths = [f"{folder}/rank_{r}.json" for r in ranks]
    while not all(map(os.path.exists, paths)):
        check(time.monotonic() < until, f"{folder}: only {os.listdir(folder)} after 30 s")
        time.sleep(0.01)
    return paths


def ask(rank, folder, number):
    """Have it leave its record, until its last operation is the one of that number."""
    path, until = f"{folder}/rank_{rank.rank}.json", time.monotonic() + 30
    while True:
        rank.process.send_signal(signal.SIGUSR2)
        while not os.path.exists(path):
            check(time.monotonic() < until, f"{path} does not come")
            time.sleep(0.01)
        entries = json.load(open(path))["entries"]
        if entries and entries[-1]["collective_seq_id"] == number:
            return
        os.unlink(path)
        check(time.monotonic() < until, f"{path} ends with {entries[-1:]}")


def first_line(paths):
    done = subprocess.run([str(CHOIR), "trace", *paths], capture_output=True, text=True)
    check(done.returncode == 0 and done.stderr == "", done)
    print(done.stdout)
    return done.stdout.splitlines()[0]


def behind(paths, waits):
    line = first_line(paths)
    check(re.fullmatch(rf'rank 2 did not call all_reduce number {LAST} of group ".*" \(100 Float\), {waits}', line), line)


# On demand: nothing has failed yet, the others wait.
ranks = start("asked", 60000)
ranks[2].wait_line("busy")
for rank in ranks:
    if rank.rank != 2:
        rank.wait_line("waiting")  # is said just before the call
    ask(rank, "asked", LAST if rank.rank != 2 else LAST - 1)
behind(wait_files("asked"), "in which ranks 0, 1 and 3 wait since .*")
for rank in ranks:
    rank.process.kill()
    rank.process.wait()

# When time is up. Rank 2 is in no call, and leaves its record as soon as it makes the next.
ranks = start("late", 500)
paths = wait_files("late", (0, 1, 3))
line = first_line(paths)
check(line.startswith(f"rank 2 left no record: nobody knows whether it called all_reduce number {LAST}"), line)
for r in (0, 1, 3, 2):
    told = ranks[r].end()
    check(told["code"] == "CHOIR_ERR_TIMEOUT" and "rank 2" in told["text"], told)
behind(wait_files("late"), ".*")

# Every one is of another length: found at once.
ranks = start("differs", 60000, "grow")
paths = wait_files("differs")
line = first_line(paths)
check(re.fullmatch(rf'rank 2 called all_reduce \({100 + SKIPPED + 1} Float, sum\) as number {SKIPPED} of group ".*", where '
                   rf'ranks 0, 1 and 3 called all_reduce \({100 + SKIPPED} Float, sum\)', line), line)
for rank in ranks:
    told = rank.end()
    check(told["code"] == "CHOIR_ERR_MISMATCH", told)
