#!/usr/bin/env python3
"""huge_test.py - collectives and messages above 2^31 bytes. Needs 5 GB of memory."""
# timeout: 600
# alone
# long
from ranks import *

free = [int(l.split()[1]) for l in open("/proc/meminfo") if l.startswith("MemAvailable")][0]
if free < 5 * 1024 * 1024:
    print(f"skip: {free // 1024} MB of memory are free, 5000 are needed")
    sys.exit(77)
done = run_ranks(2, TESTS / "huge_collective", seconds=500)
check(done.returncode == 0, f"exit code {done.returncode}: {done.stdout}{done.stderr}")
