#!/usr/bin/env python3
# timeout: 900
"""choir_start_test.py - the ways to a group of the backend "choir": launchers, stores, a group made again; how the C++
part is built; and how an interpreter ends that forgot a group."""
import os
import pathlib
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time

import choir_ranks
from choir_ranks import check

choir_ranks.need_choir_torch()

SUM = """
t = torch.ones(3) * (dist.get_rank() + 1)
dist.all_reduce(t)
n = dist.get_world_size()
assert t.tolist() == [n * (n + 1) / 2] * 3, t
"""
NO_COMPILER = {"CXX": "no-such-compiler", "CHOIR_CACHE_DIR": tempfile.gettempdir()}
HEAD = """
import os, sys, torch, torch.distributed as dist
import choir.torch
"""


def program(text, name="program.py"):
    path = pathlib.Path(name).resolve()
    path.write_text(HEAD + text)
    return path


def run(*command, expected=0, has="", env=None, seconds=choir_ranks.TEST_SECONDS):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=seconds, env={**os.environ, **(env or {})})  # fmt: skip
    if done.returncode != expected or has not in done.stdout:
        raise AssertionError(f"{' '.join(map(str, command))}: exit code {done.returncode}, not {expected}, or no {has!r}:\n"
                             f"{done.stdout}")  # fmt: skip
    return done.stdout


def free_port(address="127.0.0.1"):
    with socket.socket() as s:
        s.bind((address, 0))
        return s.getsockname()[1]


# --- launchers -----------------------------------------------------------------------------------------

def torchrun():
    """Three groups one after another: torchrun's store keeps the keys of the earlier ones."""
    path = program("for i in range(3):\n    dist.init_process_group('choir')\n" + SUM.replace("\n", "\n    ")
                   + "\n    dist.destroy_process_group()\n")  # fmt: skip
    run(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2, path)


def beside_another_backend():
    """As in "cpu:choir,cuda:nccl", where there is no GPU: gloo is for those tensors."""
    path = program("dist.init_process_group('cpu:choir,cuda:gloo')\n" + SUM + """
assert dist.get_backend_config() == "cpu:choir,cuda:gloo", dist.get_backend_config()
kinds = [dist.group.WORLD._get_backend(torch.device(device)).name() for device in ("cpu", "cuda")]
assert kinds == ["choir", "gloo"], kinds
sub = dist.new_group([0, 1])
dist.barrier(sub)
dist.destroy_process_group()
""")
    run(choir_ranks.CHOIR, "run", "-n", 2, sys.executable, path)


def spawn_and_stores():
    """mp.spawn, with a FileStore, and with a store that is a Python class and has no more than it must."""
    path = program("""
import torch.multiprocessing as mp
from datetime import timedelta

class Frugal(dist.Store):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
    def set(self, key, value):
        self.inner.set(key, value)
    def get(self, key):
        return self.inner.get(key)
    def add(self, key, number):
        return self.inner.add(key, number)

def work(rank, folder):
    for kind in ("file", "frugal", "frugal"):
        store = dist.FileStore(folder + "/" + kind, 2)
        if kind == "frugal":
            store = Frugal(store)
        dist.init_process_group("choir", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=100))
""" + SUM.replace("\n", "\n        ") + """
        dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(work, (os.getcwd(),), nprocs=2)
""")
    run(sys.executable, path)


def alone():
    path = program("dist.init_process_group('choir', store=dist.HashStore(), rank=0, world_size=1)\n" + SUM
                   + "assert dist.get_backend() == 'choir'\n")  # fmt: skip
    run(sys.executable, path)


def the_store_may_go():
    """Rank 0 hosts torch's store and drops it: the group goes on, messages between all ranks included."""
    path = program("""
rank, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["OWN_PORT"]), n, rank == 0)
dist.init_process_group("choir", store=store, rank=rank, world_size=n)
dist.barrier()
del store
for i in range(3):
""" + SUM.replace("\n", "\n    ") + "\n")
    run(choir_ranks.CHOIR, "run", "-n", 2, sys.executable, path, env={"OWN_PORT": str(free_port())})


def under_debug_detail():
    """torch wraps the backend and compares what ranks call, with the sequence numbers it is given."""
    path = program("dist.init_process_group('choir')\n" + SUM + """
try:
    dist.all_reduce(torch.ones(4 + dist.get_rank()))
except RuntimeError as error:
    assert "Detected mismatch" in str(error), error
else:
    sys.exit("no mismatch was seen")
dist.destroy_process_group()
""")
    run(choir_ranks.CHOIR, "run", "-n", 2, sys.executable, path, env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})


def torch_finds_it_by_itself():
    """As an installed package, and when the package is broken."""
    folder = pathlib.Path("installed").resolve()
    shutil.copytree(choir_ranks.torch_tests.SOURCE / "python" / "choir_autoload", folder / "choir_autoload")
    info = folder / "choir-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: choir\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[torch.backends]\nchoir = choir_autoload:register\n")
    path = pathlib.Path("auto.py").resolve()
    path.write_text("import torch, torch.distributed as dist\nassert dist.Backend.CHOIR == 'choir'\n"
                    "dist.init_process_group('choir', store=dist.HashStore(), rank=0, world_size=1)\n" + SUM)  # fmt: skip
    on = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "1"}
    run(sys.executable, path, env={**on, "PYTHONPATH": f"{folder}:{choir_ranks.PACKAGES}"})
    run(sys.executable, path, env={**on, "PYTHONPATH": str(folder)}, expected=1, has="No module named 'choir'")
    run(sys.executable, "-c", "import torch; print('torch is fine')", env={**on, "PYTHONPATH": str(folder)}, has="torch is fine")


# --- the end of the interpreter --------------------------------------------------------------------------

def a_forgotten_group():
    """Pending works with callbacks in Python, and nobody who destroys the group."""
    path = program("""
dist.init_process_group("choir")
dist.barrier()
if dist.get_rank() == 0:
    kept = dist.irecv(torch.zeros(1), 1)
    kept.get_future().then(lambda future: print("a callback"))
    dist.all_reduce(torch.ones(1), async_op=True).get_future().then(lambda future: None)
else:
    dist.all_reduce(torch.ones(1))
""")
    out = run(choir_ranks.CHOIR, "run", "-n", 2, sys.executable, path)
    for word in ("Fatal", "terminate called", "Segmentation"):
        check(word in out, False, f"{word} in {out}")


def a_callback_that_takes_its_time():
    """It has begun when the interpreter is to end, which it does afterwards."""
    path = program("""
import threading, time
dist.init_process_group("choir")
begun = threading.Event()
if dist.get_rank() == 0:
    def slow(future):
        begun.set()
        time.sleep(2.5)
        print("called back", flush=True)

    future = dist.irecv(torch.zeros(1), 1).get_future().then(slow)
    dist.barrier()
    begun.wait()
else:
    dist.barrier()
    dist.send(torch.ones(1), 0)
""")
    for more in ({}, NO_COMPILER):
        run(choir_ranks.CHOIR, "run", "-n", 2, sys.executable, path, has="called back", env=more)


def a_callback_that_issues_what_pends():
    """When the group was looked at already, and nothing was pending: it is looked at again."""
    path = program("""
import threading, time
dist.init_process_group("choir", store=dist.HashStore(), rank=0, world_size=1)
begun = threading.Event()

def slow(future):
    begun.set()
    time.sleep(2)
    try:
        dist.irecv(torch.zeros(1), 0).wait()  # nobody sends
    except dist.DistBackendError as error:
        print("ended:", error, flush=True)

kept = dist.irecv(torch.zeros(1), 0).get_future().then(slow)
dist.isend(torch.ones(1), 0).wait()
begun.wait()
""")
    began = time.monotonic()
    run(sys.executable, path, has="ended:")
    check(time.monotonic() - began < 20 * choir_ranks.SLOWNESS, True, "ended soon")


def a_callback_that_drops_the_group():
    """A tensor has its last reference, and an operation that of the tensor: its end waits for no callback, which it is."""
    path = program("""
import threading, time, types
from datetime import timedelta

store, dropped, ended = dist.HashStore(), threading.Event(), threading.Event()
backend = choir.torch.create(types.SimpleNamespace(
    store=store, group_rank=0, group_size=1, timeout=timedelta(seconds=100), group_id="one", global_ranks_in_group=[0]))

class Last:
    def __init__(self, backend):
        self.backend = backend
    def __del__(self):
        ended.set()

t = torch.zeros(1)
t.last = Last(backend)
work = backend.recv([t], 0, 0)
future = work.get_future()
future.add_done_callback(lambda future: dropped.wait())
backend.send([torch.ones(1)], 0, 0).wait()
del t, work, future, backend
dropped.set()
assert ended.wait(float(os.environ["SECONDS"]))
began = time.monotonic()
torch.ops.choir.end_pending()
assert time.monotonic() - began < float(os.environ["SECONDS"]), time.monotonic() - began
""")
    run(sys.executable, path, env={"SECONDS": str(20 * choir_ranks.SLOWNESS)})


def no_thread_for_a_callback():
    """A group in Python completes the future all the same."""
    path = program("""
import threading

def refused(thread):
    raise RuntimeError("can't start new thread")

dist.init_process_group("choir", store=dist.HashStore(), rank=0, world_size=1)
threading.Thread.start = refused
for i in range(3):
    t = torch.zeros(1)
    future = dist.irecv(t, 0).get_future().then(lambda future: future.value()[0].item())
    dist.isend(torch.ones(1), 0).wait()
    assert future.wait() == 1
""")
    run(sys.executable, path, env=NO_COMPILER, seconds=60 * choir_ranks.SLOWNESS)


def who_forks():
    """The child ends at once, whatever is under way in the parent; of one without a group it may have its own."""
    path = program("""
import threading, time

def ended(child):
    "In time: not because of what is under way in the parent."
    began = time.monotonic()
    assert os.waitpid(child, 0)[1] == 0
    assert time.monotonic() - began < float(os.environ["SECONDS"]), time.monotonic() - began

def use_a_future(wait=lambda: None):
    t = torch.zeros(1)
    future = dist.irecv(t, 0).get_future().then(lambda future: (wait(), future.value()[0].item())[1])
    dist.isend(torch.ones(1), 0).wait()
    return future

def alone():
    dist.init_process_group("choir", store=dist.HashStore(), rank=0, world_size=1)
    assert use_a_future().wait() == 1

alone()
begun, over = threading.Event(), threading.Event()
future = use_a_future(lambda: (begun.set(), over.wait()))
begun.wait()
child = os.fork()
if child == 0:
    dist.destroy_process_group()
    sys.exit()
ended(child)
over.set()
assert future.wait() == 1
if hasattr(dist.group.WORLD, "_group"):
    sys.exit()  # that is there until the end
del future
dist.destroy_process_group()
child = os.fork()
if child == 0:
    alone()
    sys.exit()
ended(child)
""")
    for more in ({}, NO_COMPILER):
        run(sys.executable, path, env={"SECONDS": str(20 * choir_ranks.SLOWNESS), **more}, seconds=60 * choir_ranks.SLOWNESS)


# --- building ----------------------------------------------------------------------------------------------

def built():
    """What was built for these tests."""
    found = sorted(pathlib.Path(os.environ["CHOIR_CACHE_DIR"]).glob("torch-*/choir_torch.so"), key=os.path.getmtime)
    return found[-1]


def compiler(text):
    """A compiler that writes what it is told into a log, then does as `text` says with "$out"."""
    path = pathlib.Path("fake-compiler").resolve()
    path.write_text(f'#!/bin/sh\necho once >> {path}.log\nwhile [ "$1" != -o ]; do shift; done\nout=$2\n{text}\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    pathlib.Path(f"{path}.log").unlink(missing_ok=True)
    return path


def one_of_many_compiles():
    path = program("choir.torch.load()\nprint('loaded')\n")
    fake = compiler(f"sleep 1\ncp {built()} $out")
    with tempfile.TemporaryDirectory() as cache:
        out = run(choir_ranks.CHOIR, "run", "-n", 4, sys.executable, path, env={"CXX": str(fake), "CHOIR_CACHE_DIR": cache})
        check(out.count("loaded"), 4, "ranks that loaded it")
        check(out.count("compiling"), 1, "ranks that said they compile")
        check(pathlib.Path(f"{fake}.log").read_text(), "once\n", "calls of the compiler")
        fake.unlink()
        run(sys.executable, path, env={"CXX": str(fake), "CHOIR_CACHE_DIR": cache}, has="loaded")
        os.chmod(cache, 0o777)
        run(sys.executable, path, env={"CHOIR_CACHE_DIR": cache}, expected=1, has="cannot be trusted")


def one_of_many_threads_loads():
    path = program("""
import threading

def load():
    choir.torch.load()
    print("loaded", flush=True)

threads = [threading.Thread(target=load) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
library = choir.torch.backend_build.ctypes.CDLL(str(choir.torch.backend_build.build(torch.__version__, torch.version.git_version)))
library.choir_torch_register()
""")
    check(run(sys.executable, path).count("loaded"), 4, "threads that loaded it")


def a_compiler_may_be_a_command():
    """CXX="ccache g++"; and what it made serves also where the folder cannot be written to."""
    path = program("choir.torch.load()\nprint('loaded')\n")
    fake = compiler(f"cp {built()} $out")
    fixed = program("os.access = lambda *args: False\nchoir.torch.load()\nprint('loaded')\n", "fixed.py")
    with tempfile.TemporaryDirectory() as cache, tempfile.TemporaryDirectory() as empty:
        words = f"{shutil.which('env')} {fake}"
        run(sys.executable, path, env={"CXX": words, "CHOIR_CACHE_DIR": cache}, has="loaded")
        fake.unlink()
        run(sys.executable, fixed, env={"CXX": words, "CHOIR_CACHE_DIR": cache, "TMPDIR": empty}, has="loaded")
        check(os.listdir(empty), [], "what was made elsewhere")


def what_is_compiled_is_for_others():
    """A folder that root fills is for all whom root's umask lets in; two may compile where there are no locks."""
    path = program("""
from choir.torch import backend_build

if "REMOVED" in os.environ:
    rename = backend_build.Path.rename
    def renamed_by_another(partial, output):
        rename(partial, output)
        raise FileNotFoundError(2, "no such file", str(partial))
    backend_build.Path.rename = renamed_by_another
os.umask(int(os.environ["MASK"], 8))
choir.torch.load()
print("loaded")
""")
    for mask, file, folder in (("022", 0o755, 0o755), ("077", 0o700, 0o700), ("002", 0o755, 0o755)):
        with tempfile.TemporaryDirectory() as top:
            env = {"CHOIR_CACHE_DIR": f"{top}/cache", "MASK": mask, "CXX": str(compiler(f"cat {built()} > $out")), "REMOVED": "1"}
            run(sys.executable, path, env=env, has="loaded")
            (made,) = pathlib.Path(top).rglob("*.so")
            modes = [stat.S_IMODE(one.stat().st_mode) for one in (made, made.parent, made.parent.parent)]
            check(modes, [file, folder, folder], f"modes with umask {mask}")


def a_compiler_that_cannot_be_run():
    path = program("choir.torch.load()\n")
    fake = pathlib.Path("no-program").resolve()
    fake.write_text("#!/no/such/shell\n")
    fake.chmod(0o755)
    with tempfile.TemporaryDirectory() as cache:
        run(sys.executable, path, env={"CXX": str(fake), "CHOIR_CACHE_DIR": cache}, expected=1, has=f"cannot run {fake}")


def no_compiler_is_said():
    path = program("choir.torch.load()\n")
    with tempfile.TemporaryDirectory() as cache:
        run(sys.executable, path, env={"CXX": "no-such-compiler", "CHOIR_CACHE_DIR": cache}, expected=1,
            has="no C++ compiler was found (tried CXX=no-such-compiler)")  # fmt: skip
        fake = compiler("echo something is wrong here; exit 1")
        run(sys.executable, path, env={"CXX": str(fake), "CHOIR_CACHE_DIR": cache}, expected=1,
            has="something is wrong here")  # fmt: skip


def no_compiler_and_nowhere_to_write():
    """It does not matter then where: the group in Python needs no folder. With a compiler it is said."""
    path = program("""
import tempfile

def none():
    raise FileNotFoundError(2, "no usable temporary directory")

tempfile.gettempdir = none
if os.environ["CXX"] == "no-such-compiler":
    dist.init_process_group("choir", store=dist.HashStore(), rank=0, world_size=1)
    choir.torch.dump_flight_record("nowhere.json", json=True)
    assert "entries" in open("nowhere.json").read()
    choir.torch.dump_flight_record("nowhere.pickle")
    import pickle
    assert "entries" in pickle.load(open("nowhere.pickle", "rb"))
    print("group", type(dist.group.WORLD).__name__)
else:
    choir.torch.load()
""")
    env = {"CHOIR_CACHE_DIR": "/proc/nothing"}
    run(sys.executable, path, env={**env, "CXX": "no-such-compiler"}, has="group PythonGroup")
    run(sys.executable, path, env={**env, "CXX": str(compiler("exit 1"))}, expected=1, has="nowhere to keep what is compiled")


def another_backend_is_missing_without_a_compiler():
    """A group in Python is all that torch makes; it says so when it is made, and when it is used for another device."""
    path = program("""
dist.init_process_group("cpu:choir,meta:gloo", store=dist.HashStore(), rank=0, world_size=1)
""" + SUM + """
try:
    dist.all_reduce(torch.ones(1, device="meta"))
except RuntimeError as error:
    print("refused:", error)
""")
    with tempfile.TemporaryDirectory() as empty:
        out = run(sys.executable, path, env={"CXX": "none", "CHOIR_CACHE_DIR": empty}, has="the other backend is missing")
    check("refused: choir: unsupported device type meta, expected cpu (without a C++ compiler" in out, True, out)


def a_compiler_may_be_ended():
    """What it leaves is removed by a later one, when it is old; two hosts may have the same process id, and there may be no locks."""
    path = program("""
import errno, fcntl
from choir.torch import backend_build

if "NOLOCK" in os.environ:
    def refused(*args):
        raise OSError(errno.ENOLCK, "no locks available")
    fcntl.flock = refused
choir.torch.load()
print("loaded")
""")
    with tempfile.TemporaryDirectory() as cache:
        env = {"CHOIR_CACHE_DIR": cache}
        ended = str(compiler("echo half > $out; kill -9 $PPID"))
        run(sys.executable, path, env={**env, "CXX": ended}, expected=-9)
        check([len(list(pathlib.Path(cache).rglob(f"*{suffix}"))) for suffix in (".tmp", ".so")], [1, 0], "files that are left")
        good = str(compiler(f"cp {built()} $out"))
        check(good, ended, "the same compiler, or the folder would be another")
        (left,) = pathlib.Path(cache).rglob("*.tmp")
        for age, count in ((0, 1), (4000, 0)):
            os.utime(left, (time.time() - age,) * 2)
            run(sys.executable, path, env={**env, "CXX": good}, has="loaded")
            check([len(list(pathlib.Path(cache).rglob(f"*{suffix}"))) for suffix in (".tmp", ".so")], [count, 1], f"files, {age} s")
            next(pathlib.Path(cache).rglob("*.so")).unlink()
    with tempfile.TemporaryDirectory() as cache:
        run(sys.executable, path, env={"CHOIR_CACHE_DIR": cache, "CXX": good, "NOLOCK": "1"}, has="loaded")
        check(len(list(pathlib.Path(cache).rglob("*.tmp"))), 0, "files that are left")


def who_has_no_home():
    path = program("""
import tempfile
from choir.torch import backend_build

os.path.expanduser = lambda path: path  # as without HOME and a line in the list of users
for name in ("CHOIR_CACHE_DIR", "XDG_CACHE_HOME"):
    os.environ.pop(name, None)
assert backend_build._wanted_cache().parent == backend_build.Path(tempfile.gettempdir()), backend_build._wanted_cache()
""")
    run(sys.executable, path)


def a_part_that_does_not_compile_fails_the_tests():
    with tempfile.TemporaryDirectory() as cache:
        run(sys.executable, pathlib.Path(__file__).with_name("choir_death_test.py"), expected=1, has="compiling for torch",
            env={"CXX": str(compiler("exit 1")), "CHOIR_CACHE_DIR": cache})  # fmt: skip


def machines_and_compilers_have_parts_of_their_own():
    """One home for several machines; and one that cannot be loaded all the same is said."""
    path = program("""
import platform
from choir.torch import backend_build

keys = {backend_build._key("this torch")}
os.environ["CXX"] = "fake-compiler -mtune=native"
keys.add(backend_build._key("this torch"))
platform.machine = lambda: "another"
keys.add(backend_build._key("this torch"))
assert len(keys) == 3, keys
os.environ["CXX"] = os.environ["FAKE"]
try:
    choir.torch.load()
except backend_build.BuildError as error:
    assert "remove" in str(error) and "compiled again" in str(error), error
else:
    sys.exit("rubbish was loaded")
""")
    with tempfile.TemporaryDirectory() as cache:
        run(sys.executable, path, env={"FAKE": str(compiler("echo rubbish > $out")), "CHOIR_CACHE_DIR": cache})


def ranks_with_and_without_a_compiler():
    path = program("""
if os.environ["RANK"] == "1":
    os.environ.update(CXX="no-such-compiler", CHOIR_CACHE_DIR=os.environ["EMPTY"])
try:
    dist.init_process_group("choir")
    dist.all_reduce(torch.ones(1))
except dist.DistBackendError as error:
    print("refused:", error, flush=True)
    os._exit(0)
""")
    with tempfile.TemporaryDirectory() as empty:
        out = run(choir_ranks.CHOIR, "run", "-n", 2, sys.executable, path, env={"EMPTY": empty})
    check(out.count("refused:"), 2, out)
    check(out.count("expected one or the other on all"), 1, out)


def own_address():
    """Of this host, in a network; a connection of datagrams sends none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.connect(("192.0.2.1", 9))
        except OSError:
            return None
        return s.getsockname()[0]


def ranks_of_other_hosts_are_told_an_address():
    """Where the store listens on a network, rank 0 tells an address in it, compiled or not."""
    address = own_address()
    if address is None or address.startswith("127."):
        print("this host has no network")
        return
    path = program("""
rank, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
store = dist.TCPStore(os.environ["ADDRESS"], int(os.environ["OWN_PORT"]), n, rank == 0)
dist.init_process_group("choir", store=dist.PrefixStore("outer", store), rank=rank, world_size=n)
words = [store.get(key).decode() for key in store.list_keys() if "choir/word/" in key]
assert len(words) == 1 and os.environ["ADDRESS"] + ":" in words[0], words
dist.barrier()
dist.destroy_process_group()
""")
    for more in ({}, NO_COMPILER):
        run(choir_ranks.CHOIR, "run", "-n", 2, sys.executable, path,
            env={"OWN_PORT": str(free_port(address)), "ADDRESS": address, **more})  # fmt: skip


def another_torch_is_noticed():
    """A library that was built for another torch is not used, whatever it is called."""
    source = pathlib.Path("other.c")
    source.write_text('const char *choir_torch_built_for(void) { return "2.12.0 other"; }\n'
                      "void choir_torch_register(void) { __builtin_trap(); }\n")  # fmt: skip
    cc = shutil.which("cc") or shutil.which("gcc")
    run(cc, "-shared", "-fPIC", "-o", "other.so", source)
    path = program("choir.torch.load()\n")
    fake = compiler(f"cp {pathlib.Path('other.so').resolve()} $out")
    with tempfile.TemporaryDirectory() as cache:
        run(sys.executable, path, env={"CXX": str(fake), "CHOIR_CACHE_DIR": cache}, expected=1,
            has="was built for torch 2.12.0 other")  # fmt: skip


CASES = [
    torchrun, beside_another_backend, spawn_and_stores, alone, the_store_may_go, under_debug_detail, torch_finds_it_by_itself, a_forgotten_group, a_callback_that_takes_its_time, a_callback_that_issues_what_pends, a_callback_that_drops_the_group, no_thread_for_a_callback, who_forks,
    one_of_many_compiles, one_of_many_threads_loads, a_compiler_may_be_a_command, what_is_compiled_is_for_others,
    a_compiler_that_cannot_be_run, no_compiler_is_said,
    no_compiler_and_nowhere_to_write, another_backend_is_missing_without_a_compiler, a_compiler_may_be_ended, who_has_no_home,
    a_part_that_does_not_compile_fails_the_tests,
    machines_and_compilers_have_parts_of_their_own,
    ranks_with_and_without_a_compiler, ranks_of_other_hosts_are_told_an_address, another_torch_is_noticed,
]  # fmt: skip

if __name__ == "__main__":
    choir_ranks.build_backend()
    choir_ranks.torch_tests.run_all([case for case in CASES if case.__name__ in sys.argv[1:] or not sys.argv[1:]])
