#!/usr/bin/env python3
"""python_typing_test.py - `mypy --strict` has nothing to say: of the package, of a program, and of what it should refuse."""
# timeout: 240
import importlib.util
import pathlib
import subprocess
import sys

import python_tests
from python_tests import SOURCE, check

python_tests.need_choir("mypy")

RIGHT = """
import array
import asyncio
import collections
import choir
from choir import nccl

group = choir.init(timeout=5)
a = array.array("d", [1.0])
b: array.array[float] = group.all_reduce(a, "avg")
work: choir.Work[array.array[float]] = group.all_reduce(a, async_op=True)
c: array.array[float] = work.wait(3)
outs: list[array.array[float]] = group.all_gather([a, a], a)
group.gather(a)
sums: choir.Sparse = group.all_reduce_sparse(a, a, (3, 4), timeout=1)
values: memoryview = group.all_reduce_sparse(a, a, [3], async_op=True).wait().values
source: int = group.recv_any(bytearray(3))
got: array.array[float] = group.sendrecv(b"abc", 1, a, 0, tag=3)
later: choir.Work[array.array[float]] = group.sendrecv(a, 1, a, 0, async_op=True)
group.all_reduce_coalesced(collections.deque([a]))
child: choir.Group | None = group.split([0, 1])
with group.batch(async_op=True) as batch:
    group.send(b"abc", 1)
with choir.open_store("hash://") as store:
    value: bytes = store.get("key", timeout=1)

async def main() -> array.array[float]:
    return await group.all_reduce(a, async_op=True)

try:
    asyncio.run(main())
except choir.Error as e:
    rank: int | None = e.rank

nccl.all_reduce([a, a], op=nccl.MAX)
with nccl.Communicator(1, nccl.unique_id(), 0, timeout=5) as comm:
    nccl.broadcast((a,), comms=comm)
    rank = comm.rank
"""

WRONG = {  # what is refused: why
    "choir.init(3)": "arg-type",
    "choir.init().all_reduce(3)": "type-var",
    "choir.init().send(b'')": "call-overload",
    "choir.init().rank = 3": "misc",
    "class Mine(choir.Group): pass": "misc",
    "x: str = choir.init().size": "assignment",
    "x: int = choir.init().all_reduce(bytearray(3))": "assignment",
}


def mypy(*args):
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", "cache", *map(str, args)],
                          capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


package = SOURCE / "python" / "choir"
files = sorted(package.glob("*.py")) + sorted(package.glob("*.pyi"))
if importlib.util.find_spec("jax") is None:
    files.remove(package / "jax.py")
if importlib.util.find_spec("torch") is not None:
    files += sorted((package / "torch").glob("*.py"))
said = mypy(*files)
check(said.splitlines()[-1][:7], "Success", said)
pathlib.Path("right.py").write_text(RIGHT)
check(mypy("right.py").splitlines()[-1][:7], "Success", mypy("right.py"))
pathlib.Path("wrong.py").write_text("import choir\n" + "\n".join(WRONG) + "\n")
said = mypy("wrong.py")
for number, (line, why) in enumerate(WRONG.items(), 2):
    check(f"wrong.py:{number}: error:" in said, True, f"refusing {line} ({why}): {said}")
