"""Choir: collective communication for programs that train or serve a model with many processes.

    import choir, numpy as np

    group = choir.init()                # who the others are: choir run, torchrun, mpirun, srun
    a = np.ones(3, "f4")
    group.all_reduce(a)                 # in place: now the sum over all ranks

Started by `choir run -n 4 python program.py`. Groups, works and stores are those of the C library, whose
manual pages hold here too; docs/python.md has the tour.
"""
from choir import _choir
from choir._choir import (
    Batch, DeadRankError, ElementTypeError, Error, ForkedError, Group, InterruptedError, InvalidError, MismatchError,
    NetworkError, NoMemoryError, NotPermittedError, ProtocolError, QueueEmptyError, RemoteError, Sparse, StateError,
    Store, StoreServer, SystemCallError, TimeoutError, UnsupportedError, Work, fake_group, init, open_store, params, reduce_local,
    serve_store, trace_dump, trace_reset)
from choir import _objects as _objects

__version__ = _choir.version()

__all__ = [
    "Batch", "DeadRankError", "ElementTypeError", "Error", "ForkedError", "Group", "InterruptedError", "InvalidError",
    "MismatchError", "NetworkError", "NoMemoryError", "NotPermittedError", "ProtocolError", "QueueEmptyError", "RemoteError",
    "Sparse", "StateError", "Store", "StoreServer", "SystemCallError", "TimeoutError", "UnsupportedError", "Work", "fake_group", "init",
    "open_store", "params", "reduce_local", "serve_store", "trace_dump", "trace_reset",
]
