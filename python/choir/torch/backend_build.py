"""backend_build.py - compile the C++ part against the torch that is installed, once, and load it.

torch promises no binary interface between its releases, and breaks it silently: symbols resolve, but virtual tables
have moved. So what is built is kept under a key of everything it depends on, and says at load what it was built for,
before anything of torch is touched.
"""
from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO

import choir

SOURCE = Path(__file__).with_name("choir_torch.cpp")
PARTS = "torch_*.hpp"  # of it, beside it
OLD = 3600  # seconds, after which nobody is compiling any more
FLAGS = ["-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden"]


class BuildError(RuntimeError):
    """The C++ part cannot be compiled here."""


class NoCompiler(BuildError):
    """There is nothing to compile it with."""


def _library() -> Path:
    """libchoir, which comes with the package."""
    for name in ("libchoir.so.0", "libchoir.so"):
        path = Path(choir.__path__[0]) / "lib" / name
        if path.exists():
            return path
    raise BuildError(f"choir.torch: no libchoir.so.0 in {Path(choir.__path__[0]) / 'lib'}")


def _headers() -> Path:
    return Path(choir.__path__[0]) / "include"


def _wanted_compiler() -> list[str]:
    return os.environ.get("CXX", "").split()  # may be "ccache g++", or have options


def _compiler() -> list[str]:
    wanted = _wanted_compiler()
    for name in wanted[:1] or ["c++", "g++", "clang++"]:
        found = shutil.which(name)
        if found:
            return [found, *wanted[1:]]
    raise NoCompiler(
        "choir.torch: no C++ compiler was found (tried "
        + (f"CXX={wanted[0]}" if wanted else "c++, g++, clang++")
        + "), and the part for PyTorch is to be compiled"
    )


def _wanted_cache() -> Path:
    root = os.environ.get("CHOIR_CACHE_DIR")
    if root:
        return Path(root)
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(caches, "choir") if os.path.isabs(caches) else _temporary()  # who has no home keeps the ~


def _temporary() -> Path:
    return Path(tempfile.gettempdir()) / f"choir-{os.getuid()}"


def _made_before(name: str) -> Path | None:
    """What is in the folder already, which need not be writable: an image may have been made with it, by root."""
    try:
        root = _wanted_cache()
        output = root / name
        info = root.stat()
        trusted = info.st_uid in (0, os.getuid()) and not info.st_mode & 0o022
        return output if trusted and output.exists() else None
    except OSError:
        return None


def _cache() -> Path:
    """A folder of the user's own; nobody else may put a library there for us to load."""
    try:
        try:
            path = _wanted_cache()
            path.mkdir(mode=0o755, parents=True, exist_ok=True)
            if not os.access(path, os.W_OK):
                raise PermissionError(errno.EACCES, "not writable", str(path))
        except OSError:
            path = _temporary()
            path.mkdir(mode=0o700, exist_ok=True)
        info = path.stat()
    except OSError as error:
        raise BuildError(f"choir.torch: nowhere to keep what is compiled ({error}); set CHOIR_CACHE_DIR") from None
    if info.st_uid != os.getuid() or info.st_mode & 0o022:
        raise BuildError(
            f"choir.torch: {path} is another user's or writable by others: a library found there cannot be trusted; "
            "set CHOIR_CACHE_DIR"
        )
    return path


def _key(built_for: str) -> str:
    """Everything that a change of would need another build."""
    digest = hashlib.sha256(repr((built_for, FLAGS, platform.machine(), _wanted_compiler())).encode())
    headers = sorted((_headers() / "choir").iterdir())
    for path in [SOURCE, *sorted(SOURCE.parent.glob(PARTS)), *headers]:
        if path.is_file():
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _command(built_for: str, torch: Path, output: Path) -> list[str]:
    return [
        *_compiler(), *FLAGS, f'-DCHOIR_TORCH_BUILT_FOR="{built_for}"',
        "-isystem", str(torch / "include"), "-isystem", str(torch / "include/torch/csrc/api/include"),
        "-isystem", str(_headers()), "-o", str(output), str(SOURCE),
        f"-L{torch / 'lib'}", "-ltorch_cpu", "-lc10", str(_library().resolve()),
    ]  # fmt: skip


def _compile(built_for: str, version: str, output: Path) -> None:
    torch = Path(sys.modules["torch"].__path__[0])
    made, name = tempfile.mkstemp(".tmp", "choir_torch.", output.parent)  # another host may have the same process id
    os.close(made)
    partial = Path(name)
    command = _command(built_for, torch, partial)
    print(f"choir: compiling the part for torch {version}; this is done once and takes about 20 seconds ...",
          file=sys.stderr, flush=True)  # fmt: skip
    try:
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        except OSError as error:
            raise BuildError(f"choir.torch: cannot run {command[0]} ({error})") from None
        if done.returncode != 0:
            text = done.stdout.decode(errors="replace")
            raise BuildError(f"choir.torch: compiling for torch {version} failed: {' '.join(command)}\n{text[-4000:]}")
        partial.chmod(output.parent.stat().st_mode & 0o755)  # mkstemp made it the owner's alone
        partial.rename(output)
    except FileNotFoundError:
        if not output.exists():  # by who took what we made for a left-over, and compiled it again
            raise
    finally:
        partial.unlink(missing_ok=True)  # of a failure, or of Ctrl-C


def _lock(file: IO[str]) -> bool:
    """Whether the others wait now; a file system may know no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        return True
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK):
            raise
        return False


def _compile_once(built_for: str, version: str, output: Path) -> None:
    output.parent.mkdir(mode=0o755, exist_ok=True)  # others may use what is there, if the umask lets them
    with open(output.with_name("lock"), "w") as lock:
        if _lock(lock):
            if output.exists():
                return
            for left in output.parent.glob("*.tmp"):
                with contextlib.suppress(FileNotFoundError):
                    if left.stat().st_mtime < time.time() - OLD:
                        left.unlink()  # by who was ended while it compiled
        _compile(built_for, version, output)


def build(version: str, git_version: str) -> Path:
    """The shared library for this torch, compiled unless it is there. Of several processes one compiles, the others
    wait for it."""
    built_for = f"{version} {git_version}"
    name = f"torch-{version}-{_key(built_for)}/choir_torch.so"
    made = _made_before(name)
    if made is not None:
        return made
    try:
        output = _cache() / name
    except BuildError:
        _compiler()  # without one it does not matter
        raise
    if output.exists():
        return output
    _compiler()
    try:
        _compile_once(built_for, version, output)
    except OSError as error:
        raise BuildError(f"choir.torch: cannot write to {output.parent} ({error}); set CHOIR_CACHE_DIR") from None
    return output


def load(version: str, git_version: str) -> None:
    """Build and load it, after making sure that it is for this torch and no other."""
    path = build(version, git_version)
    ctypes.CDLL(str(_library()))  # what it needs is then found by its name
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise BuildError(f"choir.torch: cannot load what was compiled ({error}); remove {path}, and it is compiled again") from None
    library.choir_torch_built_for.restype = ctypes.c_char_p
    built_for = library.choir_torch_built_for().decode()
    if built_for != f"{version} {git_version}":
        raise BuildError(
            f"choir.torch: {path} was built for torch {built_for}, this is torch {version} {git_version}; remove it"
        )
    library.choir_torch_register.restype = ctypes.c_bool
    if not library.choir_torch_register():
        raise BuildError(f"choir.torch: {path} cannot be registered with torch; it has said why")
