"""choir.torch: torch.distributed on Choir, for CPU tensors.

    import torch.distributed as dist
    import choir.torch                      # registers the backend "choir"

    dist.init_process_group("choir")        # or "cpu:choir,cuda:nccl"

With the package installed, torch imports it by itself (TORCH_DEVICE_BACKEND_AUTOLOAD). The part that torch calls is
C++ and depends on torch's exact build: it is compiled at the first use, which takes some 20 seconds once, and kept in
~/.cache/choir (CHOIR_CACHE_DIR). docs/torch.md tells what is promised and what torch itself refuses to other backends
than its own.
"""
from __future__ import annotations

import atexit
import sys
import threading
from typing import Any

import torch
import torch.distributed as dist

import choir
from choir.torch import backend_build

__all__ = ["average_hook", "create", "dump_flight_record", "load", "register"]

_loading = threading.RLock()  # guards both
_loaded = False
_python_instead = False


def load() -> None:
    """Load the compiled part, compiling it first if this torch has none yet; creating a group does so by itself."""
    global _loaded
    with _loading:
        if _loaded:
            return
        backend_build.load(torch.__version__, torch.version.git_version)
        # A callback that is still to come when the interpreter has ended would take the process down.
        atexit.register(lambda: torch.ops.choir.end_pending())
        _loaded = True


def _can_load() -> bool:
    """Whether there is a compiled part; says once if not, and why."""
    global _python_instead
    with _loading:
        if _python_instead:
            return False
        try:
            load()
        except backend_build.NoCompiler as error:
            _python_instead = True
            print(f"choir: {error}; a slower group in Python takes its place, for all devices: "
                  "in \"cpu:choir,cuda:...\" the other backend is missing", file=sys.stderr, flush=True)
        return not _python_instead


def dump_flight_record(path: str, *, json: bool = False) -> None:
    """Write the record of this process's last operations, for torch's flight recorder analyser, or as JSON for
    `choir trace`."""
    if _can_load():
        torch.ops.choir.dump_flight_record(path, json)
        return
    with open(path, "wb") as file:
        file.write(choir.trace_dump("json" if json else "pickle"))


def _way_to_others(store: Any) -> str:
    """The address of the store's server, if it has one: it tells which network the ranks have in common."""
    try:
        while hasattr(store, "underlying_store"):
            store = store.underlying_store
        host, port = store.host, store.port
    except (AttributeError, RuntimeError):
        return ""
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def create(opts: Any, pg_options: Any = None) -> Any:
    """What torch calls for each group, on its members: the c10d Backend; or, where none can be compiled, a group in
    Python."""
    url = _way_to_others(opts.store)
    if not _can_load():
        from choir.torch.python_group import PythonGroup

        return PythonGroup(opts.store, opts.group_rank, opts.group_size, opts.timeout, opts.group_id, url)
    timeout_ms = max(1, round(opts.timeout.total_seconds() * 1000))
    ranks = list(opts.global_ranks_in_group)
    # The backend gets into Python's hands through a group that is thrown away.
    group = dist.ProcessGroup(opts.store, opts.group_rank, opts.group_size)
    torch.ops.choir.attach(group.boxed(), timeout_ms, opts.group_id, url, ranks)
    return group._get_backend(torch.device("cpu"))


def register() -> None:
    """Make "choir" known to torch.distributed; importing this module does so."""
    dist.Backend.register_backend("choir", create, extended_api=True, devices=["cpu"])


if dist.is_available():
    from choir.torch.ddp_hook import average_hook

    register()
