#!/usr/bin/env python3
"""idle_test.py - a rank that waits a second for a late peer uses at most 5 ms of CPU, whatever it waits in."""
# timeout: 120
# alone
from ranks import *

LATE_MS, ALLOWED_MS = 1000, 5
HOWS = ("allreduce", "barrier", "an asynchronous allreduce", "recv")


def measure(env):
    """CPU in ms of each way of waiting, once."""
    told = [rank.finished() for rank in start_ranks(2, "late", LATE_MS, env=env)][0]
    for how, waited in zip(HOWS, told["waited"]):
        check(waited > LATE_MS * 0.9, f"{how}: waited only {waited} ms")
    return told["used"]


# While the host of a virtual machine runs somebody else, the thread that was running is charged for it: of three tries the
# cheapest tells what waiting costs.
for where, env in ("", {}), (", ranks outnumber processors", {"CHOIR_PROCESSORS": "1"}):
    least = measure(env)
    for _ in range(2):
        if max(least) > ALLOWED_MS:
            least = [min(pair) for pair in zip(least, measure(env))]
    for how, used in zip(HOWS, least):
        check(used <= ALLOWED_MS,
              f"{how}{where}: {used} ms of CPU in a second at least, allowed are {ALLOWED_MS}")
    print(f"CPU in ms{where}: " + ", ".join(f"{h} {u}" for h, u in zip(HOWS, least)))
