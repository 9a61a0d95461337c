#!/usr/bin/env python3
# timeout: 120
"""A build whose post lacks its release must make ThreadSanitizer complain: else our runs under it
would prove nothing about the post/wait pair. The sound build must stay silent."""
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
CASE = "what_was_written_before_a_post_is_seen_after_the_wait"


def build(program, *definitions):
    sources = [f for f in (ROOT / "src/base").glob("*.c") if not f.name.endswith("_test.c")]
    sources += [ROOT / "src/base/wait_test.c", ROOT / "tests/harness/choir_test.c"]
    done = subprocess.run(
        ["gcc", "-std=c11", "-O1", "-g", "-fsanitize=thread", "-pthread", "-D_GNU_SOURCE", "-DCH_DEBUG=1",
         *definitions, f"-I{ROOT}/src", f"-I{ROOT}/include", f"-I{ROOT}/tests/harness",
         *map(str, sources), "-o", program], capture_output=True, text=True)
    if done.returncode != 0:
        if "cannot find" in done.stderr and "tsan" in done.stderr:
            print("skip: gcc's ThreadSanitizer runtime is not installed (Debian package libtsan2)")
            sys.exit(77)
        sys.exit(f"build failed:\n{done.stderr}")


def races(program):
    done = subprocess.run([f"./{program}", "--one", CASE], capture_output=True, text=True, timeout=60)
    return done.stderr.count("data race"), done.returncode


build("sound")
build("broken", "-DCH_BREAK_POST_RELEASE")
sound, sound_exit = races("sound")
broken, broken_exit = races("broken")
print(f"sound build: {sound} races, exit {sound_exit}; without the release: {broken} races, exit {broken_exit}")
sys.exit(0 if sound == 0 and sound_exit == 0 and broken > 0 and broken_exit != 0 else 1)
