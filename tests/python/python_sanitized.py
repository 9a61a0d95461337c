#!/usr/bin/env python3
"""python_sanitized.py - tests of the package under the address and undefined-behaviour sanitizers.

Where the build folder has them (CHOIR_SANITIZE), python_tests.need_choir() runs a test through run() here: the runtime
is loaded before an interpreter that knows nothing of it, and every process of the test writes what it finds to a file.
A memory error ends its process. Leaks do not: numpy and PyTorch never free some of what they make when they are loaded,
so each leak is looked at, and it is ours if code of the build folder stands among the callers of the allocation.
Nothing is suppressed: a suppression of the interpreter's frames would hide ours, as it calls them all.

Run by itself it makes such errors and checks that they are reported.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

# Who called the allocation is only seen if the stack is walked by its tables, as interpreters keep no frame pointers.
# That makes an allocation ten times as dear, too dear for all that PyTorch does to load, and for dozens of processes.
# There leaks of the library are seen, which calls malloc() itself, but not those of the extension alone: all its
# memory is the interpreter's (PyMem_Calloc, objects), whose callers stay unknown. Our frame is a few above malloc().
CALLERS = 8
LEAK = re.compile(r"^(?:Direct|Indirect) leak of .*\n(?:    #.*\n?)+", re.M)


def cached(build, name):
    """An entry of the build folder's CMakeCache.txt; "" where there is none."""
    try:
        found = re.search(rf"^{name}:\w+=(.*)$", (build / "CMakeCache.txt").read_text(), re.M)
    except FileNotFoundError:
        return ""
    return found.group(1) if found else ""


def is_sanitized(build):
    return "address" in cached(build, "CHOIR_SANITIZE")


def runtime(build):
    """The C++ library comes along for its exceptions, which the runtime has to find when it starts."""
    compiler, names = cached(build, "CMAKE_C_COMPILER"), ("libasan.so", "libubsan.so", "libstdc++.so")
    return " ".join(subprocess.check_output([compiler, f"-print-file-name={n}"], text=True).strip() for n in names)


def environment(build, reports, walks_tables):
    common = f"log_path={reports}/report:abort_on_error=1:"
    # The exit code is for leaks, which are judged here; errors abort.
    # Up to gcc 13 the runtime takes a thread's block of variables that lies 16 bytes into a page for one with a header of
    # glibc before 2.25, reads what is not there, and dies of it now and then. Without its own look the blocks are found
    # as any memory is, from the thread that has them.
    asan = (f"exitcode=0:detect_leaks=1:malloc_context_size={CALLERS}:fast_unwind_on_malloc={int(not walks_tables)}:"
            "intercept_tls_get_addr=0:stack_trace_format='    #%n %p %F %L in module %m'")
    # Without its own arenas, where neither errors nor pointers are seen.
    return {**os.environ, "PYTHONMALLOC": "malloc", "LD_PRELOAD": runtime(build), "ASAN_OPTIONS": common + asan,
            "UBSAN_OPTIONS": common + "print_stacktrace=1", "CHOIR_TEST_SANITIZED": "1"}


def without_leaks():
    """The environment for a program that ends with leaks, and must."""
    return {**os.environ, "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}


def complaints(build, report):
    """What is wrong by one process's report: all of it, or, if it is about leaks, ours."""
    if "LeakSanitizer: detected memory leaks" not in report:
        return [report]
    return [leak for leak in LEAK.findall(report) if f"in module {build.resolve()}/" in leak]


def run(build, command, walks_tables=True):
    """Run it; its exit code, or 1 if a process of it had something to report."""
    # Compiled once here, not by every rank, where it would take longer than all else.
    subprocess.run([command[0], "-m", "compileall", "-l", "-q", build / "python" / "choir"], check=True)
    with tempfile.TemporaryDirectory() as reports:
        code = subprocess.run(command, env=environment(build, reports, walks_tables), check=False).returncode
        texts = [f.read_text(errors="replace") for f in sorted(pathlib.Path(reports).iterdir())]
    found = [c for text in texts for c in complaints(build, text)]
    print("\n".join(found), end="", flush=True)
    return 1 if found or code < 0 else code


# --- that it reports ---------------------------------------------------------------------------------

# By the extension.
LEAKED = """
import choir, ctypes
one_more = ctypes.pythonapi.Py_IncRef
one_more.argtypes = [ctypes.py_object]
one_more(choir.open_store("hash://"))
"""

# By the library. Several times: where the stack was, the last handle may still be found.
LOST = """
import choir, ctypes
library, handle = ctypes.CDLL("libchoir.so.0"), ctypes.c_void_p()
for _ in range(10):
    assert library.choir_store_open(b"hash://", None, ctypes.byref(handle)) == 0
"""

FREED = """
import choir, ctypes
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
at = libc.malloc(4096)
libc.free(at)
choir.init().all_reduce((ctypes.c_double * 512).from_address(at), input=(ctypes.c_double * 512)())
"""

# numpy's own leaks are not.
SOUND = """
import choir, numpy
choir.init().all_reduce(numpy.ones(3))
"""


def reported(program, words, *how):
    """The program is found to be wrong and the reports have these words; or, without any, to be sound."""
    said = python_tests.run(sys.executable, __file__, program, *how, code=1 if words else 0)
    python_tests.check([w for w in words if w not in said], [], f"missing in {said}")
    if not words:
        python_tests.check(said, "", "the report")


if __name__ == "__main__":
    import python_tests

    if not is_sanitized(python_tests.BUILD):
        python_tests.skip(f"{python_tests.BUILD} is not built with the address sanitizer")
    python = python_tests.need_package()
    if len(sys.argv) > 1:
        sys.exit(run(python_tests.BUILD, [python, "-c", sys.argv[1]], walks_tables="cheap" not in sys.argv[2:]))
    if subprocess.run([python, "-c", "import numpy"], capture_output=True, check=False).returncode != 0:
        python_tests.skip("numpy is not installed")
    reported(SOUND, [])
    reported(LEAKED, ["Direct leak of", "py_store_wrap"])
    reported(LOST, ["Direct leak of", "choir_store_open"])
    reported(LOST, ["Direct leak of", "choir_store_open"], "cheap")
    reported(FREED, ["heap-use-after-free", "choir_allreduce"])
