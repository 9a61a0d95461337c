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
import time

SOURCE = pathlib.Path(os.environ.get("CHOIR_TEST_SOURCE", pathlib.Path(__file__).resolve().parents[2]))
BUILD = pathlib.Path(os.environ.get("CHOIR_TEST_BUILD", SOURCE / "build"))
SLOWNESS = int(os.environ.get("CHOIR_TEST_SLOWNESS", "1"))
CHOIR = BUILD / "bin" / "choir"


def skip(reason):
    print(f"skip: {reason}")
    sys.exit(77)


def venv():
    return pathlib.Path(os.environ.get("CHOIR_TEST_VENV") or SOURCE / "build" / "venv")


def need_choir(*modules):
    """Be the interpreter that has numpy and `modules`, and find the package that was built."""
    python, packages = venv() / "bin" / "python3", BUILD / "python"
    if not (packages / "choir" / "_choir.abi3.so").exists():
        skip("the Python package was not built: Python's headers are missing (package python3-dev)")
    if os.environ.get("CHOIR_TEST_IN_VENV") != str(venv()):
        if not python.exists():
            skip(f"there is no interpreter in {venv()} (scripts/setup makes it)")
        os.environ["CHOIR_TEST_IN_VENV"] = str(venv())
        os.environ["PYTHONPATH"] = str(packages)
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        os.execv(python, [str(python), *sys.argv])
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


def main(cases):
    """Run functions of this file: each with a group of its own as so many ranks, all of one number in one job; or, if that is
    0, here. cases: {function: 2, other: (1, 4), alone: 0}."""
    if len(sys.argv) > 1:
        run_as_rank([f for f in cases if f.__name__ in sys.argv[1:]])
        return
    by_count = {}
    for function, counts in cases.items():
        for count in counts if isinstance(counts, tuple) else (counts,):
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
