"""python_tests.py - what the tests of the Python package have in common.

A test starts with `python_tests.need_choir()`, which goes on in the interpreter of the virtual environment
(CHOIR_TEST_VENV, else build/venv, made by scripts/setup) with the package as the build folder has it, or skips.
main() runs functions of the test's own file as ranks under `choir run`:

    def sums(group):
        ...

    if __name__ == "__main__":
        python_tests.main({sums: 2, others: (1, 4)})
"""
import os
import pathlib
import subprocess
import sys
import threading
import time

SOURCE = pathlib.Path(os.environ.get("CHOIR_TEST_SOURCE", pathlib.Path(__file__).resolve().parents[2]))
BUILD = pathlib.Path(os.environ.get("CHOIR_TEST_BUILD", SOURCE / "build"))
SLOWNESS = int(os.environ.get("CHOIR_TEST_SLOWNESS", "1"))
SANITIZED = "CHOIR_TEST_SANITIZED" in os.environ  # python_sanitized.py has started this
CHOIR = BUILD / "bin" / "choir"


def skip(reason):
    print(f"skip: {reason}")
    sys.exit(77)


def venv():
    return pathlib.Path(os.environ.get("CHOIR_TEST_VENV") or SOURCE / "build" / "venv")


def need_package():
    """The interpreter of the virtual environment, with the package as the build folder has it in its path."""
    python, packages = venv() / "bin" / "python3", BUILD / "python"
    if not (packages / "choir" / "_choir.abi3.so").exists():
        skip("the Python package was not built: Python's headers are missing (package python3-dev)")
    if not python.exists():
        skip(f"there is no interpreter in {venv()} (scripts/setup makes it)")
    os.environ["PYTHONPATH"] = str(packages)
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    return str(python)


def need_choir(*modules, starts_many=False):
    """Be the interpreter that has numpy and `modules`, and find the package that was built. A test that starts dozens of
    interpreters says so: sanitizers then walk stacks the cheap way, which sees less, unless time does not matter."""
    python = need_package()
    if os.environ.get("CHOIR_TEST_IN_VENV") != str(venv()):
        os.environ["CHOIR_TEST_IN_VENV"] = str(venv())
        import python_sanitized  # the ranks need not load it
        if python_sanitized.is_sanitized(BUILD):
            cheap = "torch" in modules or (starts_many and not os.environ.get("CHOIR_TEST_LONG"))
            sys.exit(python_sanitized.run(BUILD, [python, *sys.argv], walks_tables=not cheap))
        os.execv(python, [python, *sys.argv])
    for module in ("numpy", *modules):
        try:
            __import__(module)
        except ImportError:
            skip(f"{module} is not installed in {venv()}")


# --- checks ----------------------------------------------------------------------------------------

def check(got, want, what="value"):
    if got != want:
        raise AssertionError(f"{what} is {got!r}, not {want!r}")


def raises(kind, call, *args, has="", **kwargs):
    """The exception, which must be of that kind and say so."""
    try:
        got = call(*args, **kwargs)
    except kind as e:
        if has not in str(e):
            raise AssertionError(f"the error says {str(e)!r}, not {has!r}") from None
        return e
    raise AssertionError(f"{kind} expected, returned {got!r}")


# --- threads ---------------------------------------------------------------------------------------

def when_asleep(call, thread_id=None):
    """Call it from another thread as soon as this one, or that, sleeps in a wait of the library: in poll or epoll, says the
    kernel. Where it does not say, after 5 s."""
    wchan = pathlib.Path(f"/proc/self/task/{thread_id or threading.get_native_id()}/wchan")

    def watch():
        until = time.monotonic() + 5
        while "poll" not in wchan.read_text() and time.monotonic() < until:
            time.sleep(0.002)
        call()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


# --- ranks -----------------------------------------------------------------------------------------

def run(*command, seconds=60, code=0, **options):
    """What a command prints; it must end with that code, in time."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=seconds * SLOWNESS,
                          check=False, **options)
    if done.returncode != code:
        raise AssertionError(f"{command}: exit code {done.returncode}, not {code}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def ranks(count, *command, **options):
    return run(CHOIR, "run", "-n", count, *command, **options)


def which(counts):
    """Under sanitizers each function runs with one number of ranks, the least that is not alone: an interpreter takes
    seconds to start there, and more ranks take the same way through the extension."""
    counts = counts if isinstance(counts, tuple) else (counts,)
    return [min(c for c in counts if c > 1 or c == max(counts))] if SANITIZED else counts


def main(cases):
    """Run functions of this file: each with a group of its own as so many ranks, all of one number in one job; or, if that is
    0, here. cases: {function: 2, other: (1, 4), alone: 0}."""
    if len(sys.argv) > 1:
        run_as_rank([f for f in cases if f.__name__ in sys.argv[1:]])
        return
    by_count = {}
    for function, counts in cases.items():
        for count in which(counts):
            by_count.setdefault(count, []).append(function)
    for count, functions in by_count.items():
        began = time.monotonic()
        if count == 0:
            for function in functions:
                function()
        else:
            ranks(count, sys.executable, os.path.abspath(sys.argv[0]), *[f.__name__ for f in functions], seconds=100)
        names = " ".join(f.__name__ for f in functions)
        print(f"ok   {count} ranks: {names} ({time.monotonic() - began:.2f} s)", flush=True)


def run_as_rank(functions):
    import choir
    for function in functions:
        with choir.init() as group:
            function(group)


def make_comms(n, uid=None):
    """All the communicators of one id, each made by a thread, as they wait for each other."""
    from choir import nccl
    uid, comms = uid or nccl.unique_id(), [None] * n

    def join(rank):
        comms[rank] = nccl.init_rank(n, uid, rank, timeout=60)

    threads = [threading.Thread(target=join, args=(r,)) for r in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return comms
