"""choir_ranks.py - what the tests of the backend "choir" have in common.

A test names functions, each of which is called on all ranks with the default group made; `main()` starts the file
again as so many ranks under `choir run`, and all functions run in one group, one after another:

    def sums(rank, size): ...

    if __name__ == "__main__":
        choir_ranks.main([sums, ...], sizes=[2, 3, 4])
"""
import faulthandler
import functools
import os
import pathlib
import subprocess
import sys
import traceback

import torch_tests
sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "python"))
import python_sanitized  # noqa: E402 # pylint: disable=wrong-import-position
from torch_tests import BUILD, SLOWNESS, check, raises, skip  # noqa: F401

CHOIR = BUILD / "bin" / "choir"
PACKAGES = BUILD / "python"
TEST_SECONDS = 400 * SLOWNESS


def usually(usual, long):
    """What is cheap, or all."""
    return long if os.environ.get("CHOIR_TEST_LONG") else usual


def go_on_sanitized(command):
    """The compiled part has the sanitizers as well; PyTorch has not, so that its objects' types are not known to them."""
    os.environ["CXX"] = "c++ -g1 -fsanitize=address,undefined -fno-sanitize=vptr"
    sys.exit(python_sanitized.run(BUILD, command, walks_tables=False))


def need_choir_torch():
    """Be torch's interpreter, with the package as the build folder has it; or skip."""
    if not (PACKAGES / "choir" / "_choir.abi3.so").exists():
        skip("the Python package was not built: Python's headers are missing (package python3-dev)")
    os.environ["PYTHONPATH"] = str(PACKAGES)
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    os.environ.setdefault("CHOIR_CACHE_DIR", str(BUILD / "torch-cache"))
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    torch_tests.need_torch(go_on_sanitized if python_sanitized.is_sanitized(BUILD) else torch_tests.become)
    os.environ["PYTHONPATH"] = f"{PACKAGES}:{pathlib.Path(__file__).parent}"
    if str(PACKAGES) not in sys.path:
        sys.path.insert(0, str(PACKAGES))


def build_backend():
    """Compile it now, if that is still to be done: not while a test's clock runs."""
    import choir.torch

    pathlib.Path(os.environ["CHOIR_CACHE_DIR"]).mkdir(parents=True, exist_ok=True)
    try:
        choir.torch.load()
    except choir.torch.backend_build.NoCompiler as error:  # one that fails is no reason to skip
        skip(str(error).splitlines()[0])


def start(size, *argv, seconds=TEST_SECONDS, env=None, **kwargs):
    """Run a Python program as `size` ranks; its output and exit code."""
    command = [str(CHOIR), "run", "-n", str(size), sys.executable, *map(str, argv)]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds,
                          env={**os.environ, **(env or {})}, **kwargs)  # fmt: skip


def backend_of(group=None):
    """What carries a group's operations out; a group in Python does so itself."""
    import torch
    import torch.distributed as dist

    group = group or dist.group.WORLD
    return group if hasattr(group, "_group") else group._get_backend(torch.device("cpu"))


def is_python():
    """Whether the group in Python stands in for the compiled part."""
    import torch.distributed as dist

    return hasattr(dist.group.WORLD, "_group")


def compiled_only(function):
    """Of what a group in Python cannot do, as torch is."""

    @functools.wraps(function)
    def unless_python(rank, size):
        if not is_python():
            function(rank, size)

    return unless_python


def be_rank(functions, backend):
    import torch.distributed as dist

    import choir.torch  # noqa: F401

    faulthandler.dump_traceback_later(TEST_SECONDS * 0.9, exit=True)  # who hangs is to say where
    dist.init_process_group(backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    for function in functions:
        try:
            function(rank, size)
            dist.barrier()
        except BaseException:
            print(f"in {function.__name__}, rank {rank} of {size}:", flush=True)
            traceback.print_exc()
            os._exit(1)
    dist.destroy_process_group()
    faulthandler.cancel_dump_traceback_later()


def main(functions, sizes, backend="choir"):
    need_choir_torch()
    if os.environ.get("CHOIR_TEST_AS_RANK"):
        be_rank(functions, backend)
        return
    build_backend()
    for size in sizes:
        done = start(size, os.path.abspath(sys.argv[0]), env={"CHOIR_TEST_AS_RANK": "1"})
        if done.returncode != 0:
            print(done.stdout)
            sys.exit(f"with {size} ranks: exit code {done.returncode}")
