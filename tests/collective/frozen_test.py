#!/usr/bin/env python3
"""frozen_test.py - a rank that is stopped is reported as frozen within 1.5 s; continued, work goes on."""
# timeout: 120
from ranks import *

ranks = start_ranks(3, "load", 1000, env={"CHOIR_LOG": "warn"})
for rank in ranks:
    rank.wait_line("rounds")
stopped = time.monotonic()
ranks[1].process.send_signal(signal.SIGSTOP)
reports = [ranks[r].wait_line("frozen", 10, errors=True) for r in (0, 2)]
for when, line in reports:
    check(when - stopped <= 1.5, f"reported after {when - stopped:.2f} s: {line}")
    check("rank 1" in line, f"the report does not name rank 1: {line}")
seen = [len(rank.lines) for rank in ranks]
ranks[1].process.send_signal(signal.SIGCONT)
for rank, after in zip(ranks, seen):  # goes on
    rank.wait_line("rounds", after=after)
    rank.wait_line("rounds", after=after + 1)
ranks[0].process.stdin.close()
for rank in ranks:
    told = rank.finished()
    check(told["code"] == "CHOIR_OK" and told["left"] == 0, told)
print(f"reported after {max(w for w, _ in reports) - stopped:.2f} s: {reports[0][1]}")
