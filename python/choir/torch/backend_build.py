"""backend_build.py - compile the C++ part against the torch that is installed, once, and load it.

torch promises no binary interface between its releases, and breaks it silently: symbols resolve, but virtual tables
have moved. So what is built is kept under a key of everything it depends on, and says at load what it was built for,
before anything of torch is touched.
"""
from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import choir

SOURCE = Path(__file__).with_name("choir_torch.cpp")
PARTS = "torch_*.hpp"  # of it, beside it
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
    if not root:
        root = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "choir")
    return Path(root)


def _made_before(name: str) -> Path | None:
    """What is in the folder already, which need not be writable: an image may have been made with it, by root."""
    root = _wanted_cache()
    output = root / name
    try:
        info = root.stat()
        trusted = info.st_uid in (0, os.getuid()) and not info.st_mode & 0o022
        return output if trusted and output.exists() else None
    except OSError:
        return None


def _cache() -> Path:
    """A folder of the user's own; nobody else may put a library there for us to load."""
    path = _wanted_cache()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(path, os.W_OK):
            raise PermissionError(13, "not writable", str(path))
    except OSError:
        path = Path(tempfile.gettempdir()) / f"choir-{os.getuid()}"
        path.mkdir(mode=0o700, exist_ok=True)
    info = path.stat()
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
    partial = output.with_suffix(f".{os.getpid()}.tmp")
    command = _command(built_for, torch, partial)
    print(f"choir: compiling the part for torch {version}; this is done once and takes about 20 seconds ...",
          file=sys.stderr, flush=True)  # fmt: skip
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode != 0:
            text = done.stdout.decode(errors="replace")
            raise BuildError(f"choir.torch: compiling for torch {version} failed: {' '.join(command)}\n{text[-4000:]}")
        partial.rename(output)
    finally:
        partial.unlink(missing_ok=True)  # of a failure, or of Ctrl-C


def build(version: str, git_version: str) -> Path:
    """The shared library for this torch, compiled unless it is there. Of several processes one compiles, the others
    wait for it."""
    built_for = f"{version} {git_version}"
    name = f"torch-{version}-{_key(built_for)}"
    made = _made_before(f"{name}/choir_torch.so")
    if made is not None:
        return made
    folder = _cache() / name
    output = folder / "choir_torch.so"
    if output.exists():
        return output
    folder.mkdir(mode=0o700, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not output.exists():
            _compile(built_for, version, output)
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
