#!/usr/bin/env python3
# timeout: 300
"""The engine's flags without their release must make ThreadSanitizer complain while ranks are threads: else
running collectives under it would prove nothing about them. That the sound build is silent is shown by
`make sanitize`."""
import concurrent.futures
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ["base", "sched", "algo", "io", "kernel", "transport", "engine"]
FLAGS = ["-std=c11", "-O0", "-fsanitize=thread", "-pthread", "-D_GNU_SOURCE", "-DCH_DEBUG=1", "-DCH_HAVE_AVX2=0",
         "-DCH_HAVE_AVX512=0", "-DCH_HAVE_NEON=0", "-DCH_BREAK_POST_RELEASE", "-ffp-contract=off", f"-I{ROOT}/src",
         f"-I{ROOT}/include", f"-I{ROOT}/tests/harness"]
OTHER_CPUS = {"reduce_avx2.c", "reduce_avx512.c", "reduce_neon.c"}
CASE = "operations_mixed_back_to_back"


def compile_one(source):
    target = f"{source.stem}.o"
    done = subprocess.run(["gcc", *FLAGS, "-c", str(source), "-o", target], capture_output=True, text=True)
    return target, done


def build():
    sources = [f for folder in FOLDERS for f in sorted((ROOT / "src" / folder).glob("*.c"))
               if not f.name.endswith("_test.c") and f.name not in OTHER_CPUS]
    sources += [ROOT / "src/engine/algo_run_test.c", ROOT / "tests/harness/choir_test.c"]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        done = list(pool.map(compile_one, sources))
    for target, result in done:
        if result.returncode != 0:
            sys.exit(f"build of {target} failed:\n{result.stderr}")
    link = subprocess.run(["gcc", "-fsanitize=thread", "-pthread", *(t for t, _ in done), "-ldl", "-lm", "-o", "broken"],
                          capture_output=True, text=True)
    if link.returncode != 0:
        if "cannot find" in link.stderr and "tsan" in link.stderr:
            print("skip: gcc's ThreadSanitizer runtime is not installed (Debian package libtsan2)")
            sys.exit(77)
        sys.exit(f"link failed:\n{link.stderr}")


build()
run = subprocess.run(["setarch", "-R", "./broken", "--one", CASE], capture_output=True, text=True, timeout=200,
                     env={**os.environ, "TSAN_OPTIONS": "halt_on_error=1"})
races = run.stderr.count("data race")
print(f"without the release: {races} races, exit {run.returncode}")
sys.exit(0 if races > 0 and run.returncode != 0 else 1)
