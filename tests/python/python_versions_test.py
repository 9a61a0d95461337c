#!/usr/bin/env python3
"""python_versions_test.py - the extension, built with one interpreter, serves later ones: it is made for the stable ABI."""
# timeout: 60
import pathlib
import shutil
import subprocess

import python_sanitized
import python_tests
from python_tests import check, run

VERSIONS = ("3.12", "3.13", "3.14")

PROGRAM = """
import array, asyncio, choir
from choir import nccl
with choir.init() as g:
    a = array.array("d", [1, 2])
    print(g.all_reduce(a).tolist())
    async def wait(): return (await g.all_reduce(a, async_op=True)).tolist()
    print(asyncio.run(wait()))
    g.all_reduce(a, async_op=True).add_done_callback(lambda w: print("called back", w.operation))
    g.wait_pending()
    try: g.broadcast(a, 4)
    except choir.Error as e: print(type(e).__name__, e.loses)
    try: g.barrier(timeout="1")
    except TypeError as e: print(e)
    nccl.all_reduce([a, b := array.array("d", [1, 2])])
    print(a.tolist(), b.tolist())
    with g.batch(): g.all_reduce(a)
    print(g.all_gather_object({"a": 1}))
g = choir.init(); g.barrier(async_op=True)       # forgotten
"""

SAYS = """[1.0, 2.0]
[1.0, 2.0]
called back allreduce
InvalidError call
timeout: a number of seconds or a timedelta is expected, not '1'
[2.0, 4.0] [2.0, 4.0]
[{'a': 1}]
"""


def works(python):
    """A name in the path may be a stand-in for what is not there."""
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


def find(version):
    versions = pathlib.Path.home() / ".pyenv" / "versions"
    found = [shutil.which(f"python{version}"), *sorted(map(str, versions.glob(f"{version}.*/bin/python{version}")))]
    return next((python for python in found if python and works(python)), None)


python_tests.need_package()
if python_sanitized.is_sanitized(python_tests.BUILD):
    python_tests.skip("the sanitizers' library is in the way of interpreters that the build does not know")
there = {version: python for version in VERSIONS if (python := find(version))}
if not there:
    python_tests.skip(f"none of Python {', '.join(VERSIONS)} is installed")
for name, interpreter in there.items():
    said = run(interpreter, "-X", "dev", "-c", PROGRAM)
    check(said, SAYS, f"what Python {name} says")
    print(f"ok   {name}: {interpreter}")
