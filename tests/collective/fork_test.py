#!/usr/bin/env python3
"""fork_test.py - a rank forks while a collective runs, as data loaders do.

The parent goes on; what the child calls fails with the fork code; and the parent's death is seen while the child
lives and holds whatever it inherited.
"""
# timeout: 120
from ranks import *

ranks = start_ranks(3, "fork")
said = ranks[1].wait_line("child")[1]
child = int(said.split()[1].rstrip(":"))
check(said.count("CHOIR_ERR_FORKED") == 3, f"the child's calls: {said}")
seen = [len(rank.lines) for rank in ranks]
for rank, after in zip(ranks, seen):  # the parent and the others go on
    rank.wait_line("rounds", after=after)
killed = time.monotonic()
ranks[1].process.kill()
ranks[1].process.wait()
for r in (0, 2):
    told = ranks[r].finished()
    check(told["culprit"] == 1 and told["failed"] - killed < 1, told)
check(os.path.exists(f"/proc/{child}"), "the child ended before its parent's death was told")
ranks[1].process.stdin.close()
until = time.monotonic() + 30
while os.path.exists(f"/proc/{child}") and time.monotonic() < until:
    if open(f"/proc/{child}/stat").read().rsplit(")", 1)[1].split()[0] == "Z":
        break
    time.sleep(0.01)
else:
    check(not os.path.exists(f"/proc/{child}"), "the child does not end")
