#!/usr/bin/env python3
"""runner_test.py - tests/run itself: what it must pass, fail, skip, kill and count."""
# timeout: 120
import json
import os
import pathlib
import subprocess
import sys
import xml.etree.ElementTree as xml

SOURCE = pathlib.Path(os.environ["CHOIR_TEST_SOURCE"])
failures = []


def script(folder, name, body):
    path = pathlib.Path(folder, name)
    path.parent.mkdir(exist_ok=True)
    path.write_text("#!/bin/sh\n" + body)
    path.chmod(0o755)
    return path


def run(*args):
    env = {k: v for k, v in os.environ.items() if k not in ("CHOIR_TEST_RESULTS", "CHOIR_TEST_LONG")}
    return subprocess.run([SOURCE / "tests/run", *map(str, args)], capture_output=True, text=True, env=env)


def expect(what, done, code, *says):
    for words in says:
        if words not in done.stdout + done.stderr:
            failures.append(f"{what}: does not say \"{words}\":\n{done.stdout}{done.stderr}")
    if done.returncode != code:
        failures.append(f"{what}: exit code {done.returncode}, expected {code}:\n{done.stdout}{done.stderr}")


def alive(marker):
    command = f"sleep\0{marker}\0".encode()
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes() == command:
                return True
        except OSError:
            pass
    return False


CASES = [  # name, body, exit code of the runner, what it says, reason
    ("pass_test.sh", "echo talk\n", 0, "1 passed, 0 failed", "a pass, and no talk"),
    ("fail_test.sh", "echo the reason; exit 3\n", 1, "| the reason", "a failure shows its output"),
    ("signal_test.sh", "kill -SEGV $$\n", 1, "killed by SIGSEGV", "a crash is a failure"),
    ("skip_test.sh", "echo 'skip: no such thing'; exit 77\n", 0, "skipped 1: no such thing", "a skip tells why"),
    ("mute_test.sh", "exit 77\n", 1, "skipped without saying why", "a skip without a reason"),
    ("slow_test.sh", "# timeout: 1\nsleep 98001\n", 1, "not done after 1 s", "time is up"),
    ("left_test.sh", "sleep 98002 &\n", 1, "processes left behind", "a process left behind"),
    ("daemon_test.sh", "setsid sleep 98003 >/dev/null 2>&1 &\n", 1, "sleep 98003", "also one that left the session"),
    ("brief_test.sh", "sleep 0.1 &\n", 0, "1 passed", "one that is just ending is let go"),
    ("long_test.sh", "# long\nexit 1\n", 0, "make test-all runs it", "a long test waits for test-all"),
    ("where_test.sh", '[ "$PWD" = "$TMPDIR" ] && [ -z "$(ls -A)" ] && touch x\n', 0, "1 passed", "an empty folder of its own"),
    ("knobs_test.sh", '[ -z "$CHOIR_KERNEL" ]\n', 0, "1 passed", "the user's knobs do not reach a test"),
]


def check_cases():
    os.environ["CHOIR_KERNEL"] = "scalar"
    for name, body, code, says, reason in CASES:
        expect(reason, run(script("one", name, body)), code, says)
    passed = run("one/pass_test.sh")
    if "talk" in passed.stdout:
        failures.append("a passing case was printed: " + passed.stdout)
    for marker in (98001, 98002, 98003):
        if alive(marker):
            failures.append(f"sleep {marker} is still there")


def check_interrupt():
    """A case can be interrupted, also if the runner is a background job of a shell, which ignores that."""
    case = script("interrupted", "interrupted_test.sh", "kill -INT $$\n")
    done = subprocess.run(["sh", "-c", 'trap "" INT; exec "$@"', "sh", SOURCE / "tests/run", case], capture_output=True, text=True)
    expect("interrupts are not ignored", done, 1, "killed by SIGINT")


def check_counting():
    done = run("-j", 4, "--junit", "out.xml", "--results", "out.jsonl", "--suite", "all", "one")
    expect("a folder", done, 1, "all: 4 passed, 6 failed, 2 skipped")
    rows = [json.loads(line) for line in open("out.jsonl")]
    if len(rows) != len(CASES):
        failures.append(f"{len(rows)} rows in the results, expected {len(CASES)}")
    expect("a run that broke off", run("--sum", "out.jsonl"), 1, "out: did not run to its end", "4 passed, 7 failed, 2 skipped")
    expect("a whole run", run("--end", "out.jsonl", "--junit", "out.xml"), 1, "4 passed, 6 failed, 2 skipped")
    suite = xml.parse("out.xml").getroot()
    if (suite.get("tests"), suite.get("failures"), suite.get("skipped")) != ("12", "6", "2"):
        failures.append("JUnit: " + str(suite.attrib))
    expect("a missing file", run("--sum", "never.jsonl"), 1, "never: did not run to its end")
    expect("a passing case that is to be shown", run("--show", "pass", "--filter", "pass", "one"), 0, "  | talk", "1 passed")
    expect("no case", run("--filter", "nothing-like-this", "one"), 1, "no case found")
    expect("no such path", run("nowhere"), 1, "nowhere does not exist")
    expect("a command as a case", run("--case", "name", "--", "false"), 1, "name: FAILED")
    expect("a command that is not there", run("--case", "name", "--", "./nowhere"), 1, "does not start")


UNIT = """case $1 in
--list) echo quick 5; echo wrong 5; echo timed_alone 5 ;;
--one) [ "$2" != wrong ] ;;
*) exit 9 ;;
esac
"""


def check_units():
    # A program counts if its source is in the tree, or if it is named.
    program = script("units", "mine_test", UNIT)
    expect("a unit program", run("--suite", "u", program), 1, "FAIL u mine_test.wrong", "2 passed, 1 failed")
    expect("its list", run("--list", program), 0, "mine_test.timed_alone 5 s alone", "mine_test.quick 5 s")
    expect("one of it", run("--filter", "quick", program), 0, "1 passed, 0 failed")
    expect("a left-over of an earlier build", run("units"), 1, "no case found")
    expect("a wrapper", run("--wrap", "env MARK=1", program), 1, "2 passed, 1 failed")


def check_alone():
    """Cases that must run alone do: no other begins before they end."""
    for i in range(4):
        script("alone", f"t{i}_test.sh", f"{'# alone' if i < 2 else ''}\ndate +%s.%N >>{os.getcwd()}/log{i}\nsleep 0.3\n"
                                         f"date +%s.%N >>{os.getcwd()}/log{i}\n")
    expect("alone", run("-j", 4, "alone"), 0, "4 passed")
    spans = sorted([list(map(float, open(f"log{i}").read().split())), i] for i in range(4))
    for (span, i), (after, j) in zip(spans, spans[1:]):
        if (i < 2 or j < 2) and after[0] < span[1]:
            failures.append(f"t{i} and t{j} ran at the same time: {spans}")


check_cases()
check_interrupt()
check_counting()
check_units()
check_alone()
print("\n".join(failures) or "the runner does as it says")
sys.exit(1 if failures else 0)
