"""choir_autoload: what torch calls at the end of its import (entry point group torch.backends).

An exception here would break `import torch` for everybody who has the package installed: so this module imports nothing
of Choir until a group is created, and lets nothing out. TORCH_DEVICE_BACKEND_AUTOLOAD=0 turns it off.
"""
from __future__ import annotations

from typing import Any


def _create(opts: Any, pg_options: Any = None) -> Any:
    from choir.torch import create

    return create(opts, pg_options)


def register() -> None:
    """Make the backend "choir" known to torch.distributed."""
    try:
        import torch.distributed as dist

        if dist.is_available():
            dist.Backend.register_backend("choir", _create, extended_api=True, devices=["cpu"])
    except Exception:  # noqa: BLE001 - see above; `import choir.torch` tells what is wrong
        pass
