#!/usr/bin/env python3
# timeout: 120
"""A build that lacks one release order must make ThreadSanitizer complain: else our runs under it would prove
nothing about that pair. The sound build must stay silent."""
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The order that is removed, the sources beside src/base, the case that must notice.
PAIRS = [
    ("CH_BREAK_POST_RELEASE", ["base/wait_test.c"],
     "what_was_written_before_a_post_is_seen_after_the_wait"),
    ("CH_BREAK_RING_RELEASE", ["kernel/copy_over.c", "transport/byte_ring.c", "transport/transport_shm.c", "transport/byte_ring_test.c"],
     "bytes_written_before_are_seen_in_order"),
]
# In place of the kernels, whose files want flags of their own.
COPY = """#include <string.h>
#include "kernel/kernel.h"

void ch_copy(void *dst, const void *src, size_t nbytes)
{
    memcpy(dst, src, nbytes);
}

void ch_copy_by(enum ch_copy_how how, void *dst, const void *src, size_t nbytes)
{
    (void)how;
    memcpy(dst, src, nbytes);
}

void ch_copy_nt(void *dst, const void *src, size_t nbytes)
{
    memcpy(dst, src, nbytes);
}

unsigned ch_copy_there(void)
{
    return (1u << CH_COPY_HOWS) - 1;
}
"""


def build(program, files, *definitions):
    sources = [f for f in (ROOT / "src/base").glob("*.c") if not f.name.endswith("_test.c")]
    sources += [ROOT / "src" / f for f in files] + [ROOT / "tests/harness/choir_test.c", "copy.c"]
    done = subprocess.run(
        ["gcc", "-std=c11", "-O1", "-g", "-fsanitize=thread", "-pthread", "-D_GNU_SOURCE", "-DCH_DEBUG=1",
         *definitions, f"-I{ROOT}/src", f"-I{ROOT}/include", f"-I{ROOT}/tests/harness",
         *map(str, sources), "-o", program], capture_output=True, text=True)
    if done.returncode != 0:
        if "cannot find" in done.stderr and "tsan" in done.stderr:
            print("skip: gcc's ThreadSanitizer runtime is not installed (Debian package libtsan2)")
            sys.exit(77)
        sys.exit(f"build failed:\n{done.stderr}")


def races(program, case):
    done = subprocess.run([f"./{program}", "--one", case], capture_output=True, text=True, timeout=60)
    return done.stderr.count("data race"), done.returncode


def caught(order, files, case):
    build("sound", files)
    build("broken", files, f"-D{order}")
    sound, sound_exit = races("sound", case)
    broken, broken_exit = races("broken", case)
    print(f"{order}: sound build: {sound} races, exit {sound_exit}; "
          f"without the release: {broken} races, exit {broken_exit}")
    return sound == 0 and sound_exit == 0 and broken > 0 and broken_exit != 0


pathlib.Path("copy.c").write_text(COPY)
sys.exit(0 if all([caught(*pair) for pair in PAIRS]) else 1)
