"""Collectives of JAX arrays on the host: functions from arrays to new arrays.

    import choir
    import choir.jax as cj

    group = choir.init()
    total = cj.all_reduce(group, gradients)

A JAX array never changes, so an operation reads it in place and its result is a new array, which takes over the memory it
was written to. Not for use inside jax.jit, grad or vmap: these are calls, not operations of a program that is traced.
Nor with async_op or in a batch: an array that is given is whole. For both there are the group's own methods, which read JAX
arrays and write to memory of numpy:

    work = group.all_reduce(np.empty_like(x), input=x, async_op=True)
    total = jnp.asarray(work.wait())
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from choir._choir import Group

__all__ = ["all_gather", "all_reduce", "all_to_all", "broadcast", "reduce_scatter"]

_ALIGNED = 64  # memory that JAX takes as it is


def _fresh(like: jax.Array, shape: tuple[int, ...]) -> Any:
    if isinstance(like, jax.core.Tracer):
        raise TypeError(f"choir.jax: {like} has no elements yet: these functions are not for use inside jax.jit, grad or vmap")
    nbytes = math.prod(shape) * like.dtype.itemsize
    memory = np.empty(nbytes + _ALIGNED, np.uint8)
    start = -memory.ctypes.data % _ALIGNED
    return memory[start:start + nbytes].view(like.dtype).reshape(shape)


def _made(memory: Any, like: jax.Array) -> jax.Array:
    """Where the input is."""
    made: jax.Array = jax.device_put(memory, like.sharding if isinstance(like, jax.Array) else None, may_alias=True)
    return made


def _run(call: Callable[..., Any], *given: Any, **options: Any) -> None:
    """To its end: before that there is no array to give."""
    if options.get("async_op"):
        raise NotImplementedError("choir.jax: async_op: an array cannot be given before it is whole. The group's own method "
                                  "gives a work: group.all_reduce(np.empty_like(x), input=x, async_op=True)")
    if call(*given, **options) is None:
        raise NotImplementedError("choir.jax: in a batch: an array cannot be given before it is whole, and there that is when "
                                  "the block has ended. The group's own methods write to memory of numpy")


def all_reduce(group: Group, x: jax.Array, op: str = "sum", **options: Any) -> jax.Array:
    """The reduction of all ranks' arrays, on every rank."""
    out = _fresh(x, x.shape)
    _run(group.all_reduce, out, op, input=x, **options)
    return _made(out, x)


def broadcast(group: Group, x: jax.Array, root: int = 0, **options: Any) -> jax.Array:
    """The root's array; the others' say what it looks like."""
    if group.rank == root:
        _run(group.broadcast, x, root, **options)
        return x
    out = _fresh(x, x.shape)
    _run(group.broadcast, out, root, **options)
    return _made(out, x)


def all_gather(group: Group, x: jax.Array, **options: Any) -> jax.Array:
    """All ranks' arrays, along a new first axis."""
    out = _fresh(x, (group.size, *x.shape))
    _run(group.all_gather, out, x, **options)
    return _made(out, x)


def reduce_scatter(group: Group, x: jax.Array, op: str = "sum", **options: Any) -> jax.Array:
    """Of the reduction this rank's part: the first axis is divided among the ranks."""
    out = _fresh(x, (_part(group, x), *x.shape[1:]))
    _run(group.reduce_scatter, out, x, op, **options)
    return _made(out, x)


def all_to_all(group: Group, x: jax.Array, **options: Any) -> jax.Array:
    """Parts of the first axis, one to every rank and one from every rank, in rank order."""
    _part(group, x)
    out = _fresh(x, x.shape)
    _run(group.all_to_all, out, x, **options)
    return _made(out, x)


def _part(group: Group, x: jax.Array) -> int:
    if x.ndim == 0 or x.shape[0] % group.size != 0:
        raise ValueError(f"an array of shape {x.shape} is not divided by {group.size} ranks along its first axis")
    return int(x.shape[0]) // group.size
