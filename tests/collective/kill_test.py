#!/usr/bin/env python3
"""kill_test.py - ranks are killed inside an all-reduce; the others are told soon, and who it was.

One of 4, 2 of 4, and one of four times as many ranks as there are processors. Every survivor returns an error
that names a rank that was killed, within 100 ms in 99 of 100 cases and within a second always; its next call
fails at once with the same culprit; it leaves no descriptor behind and ends well.
"""
# timeout: 1200
# alone
import random

from ranks import *

TIMES = 200 if LONG else 10
SEED = int(os.environ.get("CHOIR_TEST_SEED", "1"))
random.seed(SEED)


def fell(size, nvictims, count):
    """Seconds until each survivor was told."""
    ranks = start_ranks(size, "load", count)
    for rank in ranks:
        rank.wait_line("singing")
    time.sleep(random.uniform(0, 0.02))  # at any moment of a round
    victims = random.sample(range(size), nvictims)
    killed = time.monotonic()
    for v in victims:
        ranks[v].process.kill()
    delays = []
    for rank in ranks:
        if rank.rank in victims:
            rank.process.wait()
            continue
        told = rank.finished(30)
        where = f"{size} ranks, {victims} killed, {count} elements: {told}"
        check(told["code"] != "CHOIR_OK" and told["culprit"] in victims, f"the wrong culprit: {where}")
        check(told["again_culprit"] == told["culprit"] and told["again_code"] == told["code"],
              f"the next call fails differently: {where}")
        check(told["again_took"] < 0.1, f"the next call took its time: {where}")
        check(f"rank {told['culprit']}" in told["text"], f"the text does not name the rank: {where}")
        check(told["left"] == 0, f"descriptors left behind: {where}")
        delays.append(told["failed"] - killed)
    return delays


def judge(what, delays):
    delays.sort()
    # Of a few, one that the machine held up is not one in a hundred.
    percent = 99 if len(delays) >= 200 else 90
    most = delays[int(len(delays) * percent / 100)]
    print(f"{what}: {len(delays)} survivors told, p50 {delays[len(delays) // 2] * 1e3:.1f} ms, p{percent} {most * 1e3:.1f} ms, "
          f"worst {delays[-1] * 1e3:.1f} ms")
    check(most <= 0.1, f"{what}: p{percent} is {most * 1e3:.0f} ms, promised are 100")
    check(delays[-1] <= 1, f"{what}: the worst is {delays[-1] * 1e3:.0f} ms, promised are 1000")


def many(what, size, nvictims, times):
    judge(what, [d for _ in range(times) for d in fell(size, nvictims, random.choice((1, 1000, 50000, 1000000)))])


many("1 of 4", 4, 1, TIMES)
many("2 of 4", 4, 2, max(TIMES // 4, 4))
many("4 ranks to a processor", 4 * PROCESSORS, 1, max(TIMES // 10, 3))
