"""choir_wheel_cases.py - PyTorch's own distributed tests, as the wheel ships them, for one backend and number of ranks.

    BACKEND=choir WORLD_SIZE=2 choir_wheel_cases.py [PATTERN...]

prints one JSON object per test: its name, what came of it, why, and how long it took. The tests skip by tables of
backends' names; here "choir" is taken for gloo there, and for MPI where the tables give something to MPI alone, without
touching what a test checks. Ranks are forked: they import torch once.
"""
import fnmatch
import os
import sys
import tempfile
import types
import unittest

NAME = os.environ["BACKEND"]
os.environ.setdefault("TEMP_DIR", tempfile.mkdtemp(prefix="wheel-"))
os.environ.setdefault("INIT_METHOD", f"file://{os.environ['TEMP_DIR']}/init")


class Taken(str):
    """A backend's name that compares as those do whose tests it is to run."""

    def __eq__(self, other):
        return str.__eq__(self, other) or other in ("gloo", "mpi")

    def __ne__(self, other):
        return not self == other

    __hash__ = "gloo".__hash__  # to be found in sets that name gloo


class Environ:
    """os.environ, but for that one name."""

    def __init__(self, real):
        self.real = real

    def __getitem__(self, name):
        return Taken(NAME) if name == "BACKEND" else self.real[name]

    def __getattr__(self, name):
        return getattr(self.real, name)

    def __setitem__(self, name, value):
        self.real[name] = value

    def __contains__(self, name):
        return name in self.real


class OperatingSystem:
    """The module os, but for that one name in its environ."""

    environ = Environ(os.environ)

    def __getattr__(self, name):
        return getattr(os, name)


def stand_in_for_expecttest():
    """Torch's test classes derive from that package's, which is used by none of these."""
    try:
        import expecttest
    except ImportError:
        expecttest = types.ModuleType("expecttest")
        expecttest.TestCase = unittest.TestCase
        sys.modules["expecttest"] = expecttest


def import_tests():
    stand_in_for_expecttest()
    import torch.distributed as dist
    from torch.testing._internal import common_distributed

    if NAME == "gloo":
        from torch.testing._internal.distributed import distributed_test
        return distributed_test
    import choir.torch

    is_compiled = choir.torch._can_load()  # before ranks are forked
    common_distributed.DistTestCases.backend_feature["plugin"].add(NAME)
    if int(os.environ["WORLD_SIZE"]) > 2:
        common_distributed.os = OperatingSystem()  # tests of subgroups run with few ranks for MPI alone
    real = os.environ
    os.environ = Environ(real)
    try:
        from torch.testing._internal.distributed import distributed_test
    finally:
        os.environ = real
    if is_compiled:  # torch's profiler sees nothing of a group in Python
        for table in ("PROFILING_SUPPORTED_BACKENDS", "CUDA_PROFILING_SUPPORTED_BACKENDS",
                      "SEND_RECV_PROFILING_SUPPORTED_BACKENDS"):  # fmt: skip
            getattr(distributed_test, table).append(NAME)
    assert dist.Backend.backend_capability[NAME] == ["cpu"]
    return distributed_test


import torch.multiprocessing

from choir_wheel_results import Results

distributed_test = import_tests()


class WheelTest(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


if __name__ == "__main__":
    OUT = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the tests print
    patterns = sys.argv[1:] or ["*"]
    for name in unittest.TestLoader().getTestCaseNames(WheelTest):
        if any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
            WheelTest(name).run(Results(OUT))
