#!/usr/bin/env python3
"""idle_test.py - a rank that waits a second for a late peer uses at most 5 ms of CPU, whatever it waits in."""
# timeout: 120
# alone
from ranks import *

LATE_MS, ALLOWED_MS = 1000, 5
HOWS = ("allreduce", "barrier", "an asynchronous allreduce", "recv")

ranks = start_ranks(2, "late", LATE_MS)
told = [rank.finished() for rank in ranks][0]
for how, used, waited in zip(HOWS, told["used"], told["waited"]):
    check(waited > LATE_MS * 0.9, f"{how}: waited only {waited} ms")
    check(used <= ALLOWED_MS, f"{how}: {used} ms of CPU in {waited} ms, allowed are {ALLOWED_MS}")
print("CPU in ms: " + ", ".join(f"{h} {u}" for h, u in zip(HOWS, told["used"])))
