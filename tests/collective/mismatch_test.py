#!/usr/bin/env python3
"""mismatch_test.py - ranks that call different things are all told within a second who called what."""
# timeout: 600
from ranks import *

CASES = 1000 if LONG else 250
done = subprocess.run([str(TESTS / "mismatch"), "--seed", os.environ.get("CHOIR_TEST_SEED", "1"), "--cases", str(CASES)],
                      env=environment(), capture_output=True, text=True)
check(done.returncode == 0, f"exit code {done.returncode}: {done.stdout}{done.stderr}")
print(done.stdout, end="")
