#!/usr/bin/env python3
"""frozen_test.py - a rank that is stopped is reported as frozen within 1.5 s; continued, work goes on.

It is said once, and said again when the rank is stopped again. With CHOIR_FROZEN_S it ends as an error.
"""
# timeout: 120
from ranks import *


def stop(ranks):
    """Have rank 1 stopped, and reported by the others."""
    heard = [len(rank.errors) for rank in ranks]
    stopped = time.monotonic()
    ranks[1].process.send_signal(signal.SIGSTOP)
    for r in (0, 2):
        when, line = ranks[r].wait_line("frozen", 10, errors=True, after=heard[r])
        check(when - stopped <= 1.5, f"reported after {when - stopped:.2f} s: {line}")
        check("rank 1" in line, f"the report does not name rank 1: {line}")
        print(f"reported after {when - stopped:.2f} s: {line}")


def go_on(ranks):
    seen, heard = [len(rank.lines) for rank in ranks], [len(rank.errors) for rank in ranks]
    ranks[1].process.send_signal(signal.SIGCONT)
    for rank, after in zip(ranks, seen):
        rank.wait_line("rounds", after=after)
        rank.wait_line("rounds", after=after + 1)
    for r in (0, 2):
        ranks[r].wait_line("rank 1 goes on", errors=True, after=heard[r])


ranks = start_ranks(3, "load", 1000)
for rank in ranks:
    rank.wait_line("rounds")
stop(ranks)
time.sleep(1.2)  # they look again after a second, and have nothing new to say
for r in (0, 2):
    said = [line for _, line in ranks[r].errors if "frozen" in line]
    check(len(said) == 1, f"said more than once: {said}")
go_on(ranks)
stop(ranks)
go_on(ranks)
ranks[0].process.stdin.close()
for rank in ranks:
    told = rank.finished()
    check(told["code"] == "CHOIR_OK" and told["left"] == 0, told)

ranks = start_ranks(3, "load", 1000, env={"CHOIR_FROZEN_S": 1})
for rank in ranks:
    rank.wait_line("rounds")
stopped = time.monotonic()
ranks[1].process.send_signal(signal.SIGSTOP)
for r in (0, 2):
    told = ranks[r].finished(20)
    check(told["code"] == "CHOIR_ERR_TIMEOUT" and told["culprit"] == 1 and "frozen" in told["text"], told)
    check(1 <= told["failed"] - stopped < 5, f"after {told['failed'] - stopped:.2f} s: {told}")
ranks[1].process.kill()
ranks[1].process.wait()
