#!/usr/bin/env python3
"""data_way_test.py - the way of the data in ARCHITECTURE.md, held against the stack of a real all-reduce.

A rank runs under gdb until its bytes are added up. Every function on that stack that files share must be in
the list, in its order and its file, and nothing in the list may be missing but what the compiler left out.
"""
# timeout: 60
import os
import pathlib
import re
import shutil
import subprocess
import sys

SOURCE, BUILD = pathlib.Path(os.environ["CHOIR_TEST_SOURCE"]), pathlib.Path(os.environ["CHOIR_TEST_BUILD"])
MOST = 8  # calls
UNDER_GDB = 'if [ "$CHOIR_RANK" = 0 ]; then exec gdb -nx -batch {0} --args "$@"; else exec "$@"; fi'


def check(condition, *text):
    if not condition:
        sys.exit("FAILED: " + " ".join(map(str, text)))


def listed():
    """(function, file), from the call to the bytes."""
    text = (SOURCE / "ARCHITECTURE.md").read_text()
    block = text[text.index("## The way of the data"):].split("```")[1]
    return re.findall(r"^(?:-> )?(\w+)\(\)\s+(\w+/\w+\.c)", block, re.M)


def stack():
    """The same, of a rank that adds up."""
    if shutil.which("gdb") is None:
        print("skip: gdb is not installed")
        sys.exit(77)
    script = UNDER_GDB.format("-ex 'set pagination off' -ex 'set style enabled off' -ex 'break ch_reduce' -ex run -ex bt -ex kill")
    done = subprocess.run([BUILD / "bin/choir", "run", "-n", "2", "sh", "-c", script, "sh", BUILD / "bin/tests/singer",
                           "load", "1000"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if "ptrace" in done.stdout + done.stderr:
        print("skip: ptrace is not allowed here")
        sys.exit(77)
    frames = re.findall(r"#\d+ +(?:0x\w+ in )?(\w+) \(.*\) at .*?src/(\w+/\w+\.c):", done.stdout)
    check(frames, "no stack from gdb:", done.stdout[-2000:], done.stderr[-2000:])
    return list(reversed(frames))


way, real = listed(), stack()
check(2 < len(way) <= MOST, "the list has", len(way), "calls:", way)
shared = [f for f in real if f[0].startswith(("ch_", "choir_")) and f[0] != "ch_wait"]
check(all(f in way for f in shared), "not in the list:", [f for f in shared if f not in way])
check([f for f in way if f in real] == [f for f in real if f in way], "another order:", real)
# A static function may be inlined, or its frame given to what it calls last; then it must at least be there.
for name, path in (f for f in way if f not in real):
    check(not name.startswith(("ch_", "choir_")), name, "is not on the stack:", real)
    check(re.search(rf"^static .*\b{name}\(", (SOURCE / "src" / path).read_text(), re.M), path, "has no", name)
print("\n".join(f"{name}  {path}" for name, path in shared))
