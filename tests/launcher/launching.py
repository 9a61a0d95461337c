"""launching.py - what the tests of `choir run` share.

A test is a list of functions; main() runs those whose names begin with "test_", each of them in an empty
folder of its own, and prints every failed check with what was seen.
"""
import os
import pathlib
import signal
import subprocess
import sys
import time
import traceback

SOURCE = pathlib.Path(os.environ.get("CHOIR_TEST_SOURCE", pathlib.Path(__file__).parents[2]))
BUILD = pathlib.Path(os.environ.get("CHOIR_TEST_BUILD", SOURCE / "build"))
CHOIR = str(BUILD / "bin/choir")
PATIENCE = 25  # for what has to happen soon: machines may be slow
MARK = "LAUNCHER_TEST_MARK"  # in the environment of everything a test starts
os.environ[MARK] = str(os.getpid())
# A shell that started us in the background may have made us ignore these, and what we start with us.
for sig in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(sig) == signal.SIG_IGN:
        signal.signal(sig, signal.SIG_DFL)
failures = []


def check(condition, *told):
    if not condition:
        where = traceback.extract_stack(limit=2)[0]
        failures.append(f"line {where.lineno}: " + " ".join(map(str, told)))
    return condition


def run(*args, **options):
    """`choir run` to its end."""
    options = {"stdin": subprocess.DEVNULL, "capture_output": True, "timeout": PATIENCE * 2, **options}
    if "input" in options:
        del options["stdin"]
    return subprocess.run([CHOIR, "run", *map(str, args)], **options)


def start(*args, **options):
    """`choir run`, under way."""
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen([CHOIR, "run", *map(str, args)], **options)


def lines(output):
    return output.decode().splitlines()


def eventually(condition, what, seconds=PATIENCE):
    """Wait until it is so; what it returned."""
    until = time.monotonic() + seconds
    while True:
        seen = condition()
        if seen or time.monotonic() > until:
            break
        time.sleep(0.005)
    check(seen, "not within", seconds, "s:", what)
    return seen


def state_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "X"


def is_alive(pid):
    return state_of(pid) not in "ZX"


def family():
    """All processes that carry the mark, but this one: ranks, keepers, launchers and their children."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            environment = pathlib.Path(f"/proc/{entry}/environ").read_bytes()
            command = pathlib.Path(f"/proc/{entry}/cmdline").read_bytes()
        except OSError:
            continue
        if f"{MARK}={os.getpid()}".encode() in environment.split(b"\0") and is_alive(int(entry)):
            found[int(entry)] = command.replace(b"\0", b" ").decode(errors="replace")
    return found


def keeper_of(launcher):
    """The launcher's child."""
    for pid in family():
        stat = pathlib.Path(f"/proc/{pid}/stat")
        try:
            if int(stat.read_text().rsplit(")", 1)[1].split()[1]) == launcher.pid:
                return pid
        except OSError:
            pass
    return None


def wait_for(path, count=1):
    """A rank says that it is ready by making a file."""
    eventually(lambda: len(list(pathlib.Path(".").glob(path))) >= count, f"{count} files {path}")


def read_pids(path="pid.*"):
    return [int(p.read_text()) for p in pathlib.Path(".").glob(path)]


def nothing_is_left():
    return eventually(lambda: not family(), "no process is left") or check(False, family())


def finish(process):
    """Its exit code, output and errors."""
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err


def main(tests):
    here = pathlib.Path.cwd()
    for name, test in list(tests.items()):
        if not name.startswith("test_"):
            continue
        folder = here / name
        folder.mkdir()
        os.chdir(folder)
        began, before = time.monotonic(), len(failures)
        try:
            test()
            left = family()
            check(not left, "processes are left:", left)
            for pid in left:
                os.kill(pid, signal.SIGKILL)
        except Exception:
            failures.append(traceback.format_exc())
        failures[before:] = [f"{name}: {failure}" for failure in failures[before:]]
        if "-v" in sys.argv:
            print(f"{name} {time.monotonic() - began:.2f} s", flush=True)
    for pid in family():
        os.kill(pid, signal.SIGKILL)
    print("\n".join(failures) or "as it should be")
    sys.exit(1 if failures else 0)
