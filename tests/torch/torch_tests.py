"""torch_tests.py - what the tests with PyTorch have in common: its interpreter, our library, our server.

A test starts with `torch_tests.need_torch()`, which goes on in the interpreter of the virtual
environment (CHOIR_TEST_VENV, else build/venv, made by scripts/setup) or skips. Our client is called through
ctypes, so that a test may have threads in it and in PyTorch's at once.
"""
import contextlib
import ctypes
import os
import pathlib
import subprocess
import sys
import threading
import time

SOURCE = pathlib.Path(os.environ.get("CHOIR_TEST_SOURCE", pathlib.Path(__file__).resolve().parents[2]))
BUILD = pathlib.Path(os.environ.get("CHOIR_TEST_BUILD", SOURCE / "build"))
SLOWNESS = int(os.environ.get("CHOIR_TEST_SLOWNESS", "1"))
TORCH = "2.13.0"


def skip(reason):
    print(f"skip: {reason}")
    sys.exit(77)


def become(command):
    os.execv(command[0], command)


def need_torch(go_on=become):
    """Be the interpreter that has PyTorch, of the version that is tested with."""
    venv = pathlib.Path(os.environ.get("CHOIR_TEST_VENV") or SOURCE / "build" / "venv")
    python = venv / "bin" / "python3"
    if os.environ.get("CHOIR_TEST_IN_VENV") != str(venv):
        if not python.exists():
            skip(f"PyTorch {TORCH} is not installed in {venv} (scripts/setup does that)")
        os.environ["CHOIR_TEST_IN_VENV"] = str(venv)
        go_on([str(python), *sys.argv])
    try:
        from importlib.metadata import version
        found = version("torch").split("+")[0]
    except ImportError:
        found = "none"
    if found != TORCH:
        skip(f"PyTorch {TORCH} is tested with, {venv} has {found}")


# --- checks ----------------------------------------------------------------------------------------

def check(got, want, what=""):
    if got != want:
        raise AssertionError(f"{what or 'value'} is {got!r}, not {want!r}")


def raises(kind, call, *args, has=""):
    try:
        got = call(*args)
    except kind as e:
        if has not in str(e):
            raise AssertionError(f"the error says {str(e)!r}, not {has!r}") from None
        return str(e)
    raise AssertionError(f"{kind} expected, returned {got!r}")


class Thread(threading.Thread):
    """A thread whose exception is raised by join()."""

    def __init__(self, target, *args):
        super().__init__(daemon=True)
        self.call, self.args, self.error, self.result = target, args, None, None
        self.start()

    def run(self):
        try:
            self.result = self.call(*self.args)
        except BaseException as e:  # pylint: disable=broad-except
            self.error = e

    def done(self, seconds=20):
        self.join(seconds * SLOWNESS)
        if self.is_alive():
            raise AssertionError("a call did not return")
        if self.error:
            raise self.error
        return self.result


def run_all(cases, *args):
    for case in cases:
        began = time.monotonic()
        case(*args)
        print(f"ok   {case.__name__} ({time.monotonic() - began:.2f} s)", flush=True)


# --- our server ------------------------------------------------------------------------------------

@contextlib.contextmanager
def our_server():
    """(host, port) of a server of ours that speaks PyTorch's protocol."""
    program = BUILD / "bin" / "tests" / "torch_serve"
    if not program.exists():
        skip(f"{program} was not built")
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        host, port = server.stdout.readline().strip().rsplit(":", 1)
        try:
            yield host, int(port)
        finally:
            server.stdin.close()
            check(server.wait(20), 0, "the server's exit code")


# --- our client ------------------------------------------------------------------------------------

class Bytes(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("nbytes", ctypes.c_size_t)]


class Blob(ctypes.Structure):
    _fields_ = [("data", ctypes.POINTER(ctypes.c_char)), ("nbytes", ctypes.c_size_t)]


class OpenOpts(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("timeout_ms", ctypes.c_int64), ("token", ctypes.c_void_p),
                ("nranks", ctypes.c_int), ("run_id", ctypes.c_char_p)]


class ChoirError(Exception):
    def __init__(self, status, text):
        super().__init__(f"{status}: {text}")
        self.status = status


class Choir:
    """A store of ours at a URL, with the calls of choir/store.h."""

    lib = None

    @classmethod
    def load(cls):
        if cls.lib is None:
            cls.lib = ctypes.CDLL(str(BUILD / "lib" / "libchoir.so"))
            for name in ("choir_last_error", "choir_status_name"):
                getattr(cls.lib, name).restype = ctypes.c_char_p
        return cls.lib

    def __init__(self, host, port, seconds=20):
        self.store = ctypes.c_void_p()
        opts = OpenOpts(ctypes.sizeof(OpenOpts), int(seconds * 1000 * SLOWNESS))
        self.load()
        self.call("choir_store_open", f"tcp://{host}:{port}?protocol=torch".encode(), ctypes.byref(opts),
                  ctypes.byref(self.store))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.lib.choir_store_close(self.store)

    def call(self, name, *args):
        rc = getattr(self.lib, name)(*args)
        if rc != 0:
            raise ChoirError(self.lib.choir_status_name(rc).decode(), self.lib.choir_last_error().decode())

    @staticmethod
    def bytes(text):
        raw = text.encode() if isinstance(text, str) else text
        made = Bytes(ctypes.cast(ctypes.c_char_p(raw), ctypes.c_void_p), len(raw))
        made.keep = raw
        return made

    def list_of(self, texts):
        items = [self.bytes(t) for t in texts]
        made = (Bytes * max(1, len(items)))(*items)
        made.keep = items
        return made

    def take(self, blob):
        value = ctypes.string_at(blob.data, blob.nbytes)
        self.lib.choir_blob_free(ctypes.byref(blob))
        return value

    def take_list(self, blobs, count):
        values = [ctypes.string_at(blobs[i].data, blobs[i].nbytes) for i in range(count)]
        self.lib.choir_blob_free_list(blobs, ctypes.c_size_t(count))
        return values

    def set(self, key, value):
        self.call("choir_store_set", self.store, self.bytes(key), self.bytes(value))

    def get(self, key, ms=0):
        blob = Blob()
        self.call("choir_store_get", self.store, self.bytes(key), ctypes.c_int64(ms), ctypes.byref(blob))
        return self.take(blob)

    def add(self, key, delta):
        total = ctypes.c_int64()
        self.call("choir_store_add", self.store, self.bytes(key), ctypes.c_int64(delta), ctypes.byref(total))
        return total.value

    def compare_set(self, key, expected, desired):
        blob = Blob()
        self.call("choir_store_compare_set", self.store, self.bytes(key), self.bytes(expected), self.bytes(desired),
                  ctypes.byref(blob))
        return self.take(blob)

    def append(self, key, more):
        self.call("choir_store_append", self.store, self.bytes(key), self.bytes(more))

    def delete(self, key):
        removed = ctypes.c_bool()
        self.call("choir_store_delete", self.store, self.bytes(key), ctypes.byref(removed))
        return removed.value

    def multi_get(self, keys, ms=0):
        blobs = ctypes.POINTER(Blob)()
        self.call("choir_store_multi_get", self.store, self.list_of(keys), ctypes.c_size_t(len(keys)),
                  ctypes.c_int64(ms), ctypes.byref(blobs))
        return self.take_list(blobs, len(keys))

    def multi_set(self, keys, values):
        self.call("choir_store_multi_set", self.store, self.list_of(keys), self.list_of(values),
                  ctypes.c_size_t(len(keys)))

    def check(self, keys):
        found = ctypes.c_bool()
        self.call("choir_store_check", self.store, self.list_of(keys), ctypes.c_size_t(len(keys)), ctypes.byref(found))
        return found.value

    def wait(self, keys, ms=0):
        self.call("choir_store_wait", self.store, self.list_of(keys), ctypes.c_size_t(len(keys)), ctypes.c_int64(ms))

    def count(self):
        count = ctypes.c_int64()
        self.call("choir_store_count", self.store, ctypes.byref(count))
        return count.value

    def list(self):
        blobs, count = ctypes.POINTER(Blob)(), ctypes.c_size_t()
        self.call("choir_store_list", self.store, ctypes.byref(blobs), ctypes.byref(count))
        return sorted(self.take_list(blobs, count.value))

    def push(self, key, value):
        self.call("choir_store_queue_push", self.store, self.bytes(key), self.bytes(value))

    def pop(self, key, ms=0):
        blob = Blob()
        self.call("choir_store_queue_pop", self.store, self.bytes(key), ctypes.c_int64(ms), ctypes.byref(blob))
        return self.take(blob)

    def try_pop(self, key):
        blob = Blob()
        self.call("choir_store_queue_try_pop", self.store, self.bytes(key), ctypes.byref(blob))
        return self.take(blob)

    def length(self, key):
        length = ctypes.c_int64()
        self.call("choir_store_queue_length", self.store, self.bytes(key), ctypes.byref(length))
        return length.value

    def barrier(self, key, nranks, ms=0):
        self.call("choir_store_barrier", self.store, self.bytes(key), ctypes.c_int64(nranks), ctypes.c_int64(ms))

    def interrupt(self):
        self.lib.choir_store_interrupt(self.store)

    def resume(self):
        self.lib.choir_store_resume(self.store)
