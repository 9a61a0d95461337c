#!/usr/bin/env python3
"""nccl_library_test.py - docs/nccl-module.md; and NCCL itself, where it is installed: asked for version and id."""
# timeout: 120
import os
import pathlib
import re
import subprocess
import sys

import python_tests
from python_tests import check, run, skip

python_tests.need_choir(starts_many=True)

import choir  # noqa: E402 # pylint: disable=wrong-import-position
from choir import nccl  # noqa: E402 # pylint: disable=wrong-import-position

LIBRARY = r"""
#include <string.h>
struct id { char bytes[128]; };
int ncclGetVersion(int *out) { *out = VERSION; return RESULT; }
int ncclGetUniqueId(struct id *out) { memset(out->bytes, 7, 128); return RESULT; }
const char *ncclGetErrorString(int code) { return code == 2 ? "unhandled system error" : "?"; }
"""

ASK = """
from choir import nccl
print(nccl.library_path())
print(nccl.version(library="nccl"))
print(nccl.unique_id(library="nccl") == bytes([7]) * 128)
print(nccl.version() == nccl.version(compiled=True))
"""

REFUSED = """
from choir import nccl
for call in (nccl.version, nccl.unique_id):
    try:
        call(library="nccl")
    except RuntimeError as e:
        print(type(e).__name__, e)
"""


def build(name, **macros):
    path = pathlib.Path(name).resolve()
    path.parent.mkdir(exist_ok=True)
    pathlib.Path("nccl.c").write_text(LIBRARY, encoding="ascii")
    try:
        subprocess.run(["cc", "-shared", "-fPIC", *(f"-D{k}={v}" for k, v in macros.items()), "-o", path, "nccl.c"],
                       env={k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}, check=True)
    except FileNotFoundError:
        skip("there is no C compiler")
    return path


def ask(code, **environment):
    return run(sys.executable, "-c", code, env={**os.environ, **environment}).splitlines()


def page():
    """The examples of docs/nccl-module.md run as they stand."""
    text = (python_tests.SOURCE / "docs" / "nccl-module.md").read_text(encoding="utf-8")
    examples = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    check(len(examples), 3, "examples")
    for number, example in enumerate(examples):
        path = pathlib.Path(f"example{number}.py")
        path.write_text(example, encoding="utf-8")
        run(sys.executable, path)
    classes = set(re.findall(r"`(\w+Error)`", text)) - {"NotHostError"}
    for name in classes:
        check(issubclass(getattr(nccl, name), choir.Error), True, name)


def found():
    new, old = build("lib/libnccl.so.2", VERSION=22809, RESULT=0), build("old.so", VERSION=2708, RESULT=0)
    check(ask(ASK, LD_LIBRARY_PATH=str(new.parent)), [str(new), "(2, 28, 9)", "True", "True"])
    check(ask(ASK, CHOIR_LIBNCCL=str(old)), [str(old), "(2, 7, 8)", "True", "True"])


def refused():
    broken = build("broken.so", VERSION=22809, RESULT=2)
    lines = ask(REFUSED, CHOIR_LIBNCCL=str(broken))
    check([("NCCL Error 2: unhandled system error" in line) for line in lines], [True, True], "what NCCL said")
    lines = ask(REFUSED, CHOIR_LIBNCCL="/nowhere/libnccl.so.2")
    check([line.startswith("UnsupportedError") and "/nowhere/libnccl.so.2" in line for line in lines], [True, True], lines)
    check(ask("from choir import nccl; print(nccl.library_path())", CHOIR_LIBNCCL="/nowhere"), ["None"])


if __name__ == "__main__":
    python_tests.main({page: 0, found: 0, refused: 0})
