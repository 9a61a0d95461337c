"""Collectives of JAX arrays on the host: functions from arrays to new arrays.

    import choir
    import choir.jax as cj

    group = choir.init()
    total = cj.all_reduce(group, gradients)

A JAX array never changes, so an operation reads it in place and its result is a new array, which takes over the memory it
was written to. Not for use inside jax.jit: these are calls, not operations of a compiled program.
"""
from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from choir._choir import Group

__all__ = ["all_gather", "all_reduce", "all_to_all", "broadcast", "reduce_scatter"]


def _fresh(like: jax.Array, shape: tuple[int, ...]) -> Any:
    return np.empty(shape, like.dtype)


def _made(memory: Any) -> jax.Array:
    made: jax.Array = jnp.asarray(memory)
    return made


def all_reduce(group: Group, x: jax.Array, op: str = "sum", **options: Any) -> jax.Array:
    """The reduction of all ranks' arrays, on every rank."""
    out = _fresh(x, x.shape)
    group.all_reduce(out, op, input=x, **options)
    return _made(out)


def broadcast(group: Group, x: jax.Array, root: int = 0, **options: Any) -> jax.Array:
    """The root's array; the others' say what it looks like."""
    if group.rank == root:
        group.broadcast(x, root, **options)
        return x
    out = _fresh(x, x.shape)
    group.broadcast(out, root, **options)
    return _made(out)


def all_gather(group: Group, x: jax.Array, **options: Any) -> jax.Array:
    """All ranks' arrays, along a new first axis."""
    out = _fresh(x, (group.size, *x.shape))
    group.all_gather(out, x, **options)
    return _made(out)


def reduce_scatter(group: Group, x: jax.Array, op: str = "sum", **options: Any) -> jax.Array:
    """Of the reduction this rank's part: the first axis is divided among the ranks."""
    out = _fresh(x, (_part(group, x), *x.shape[1:]))
    group.reduce_scatter(out, x, op, **options)
    return _made(out)


def all_to_all(group: Group, x: jax.Array, **options: Any) -> jax.Array:
    """Parts of the first axis, one to every rank and one from every rank, in rank order."""
    _part(group, x)
    out = _fresh(x, x.shape)
    group.all_to_all(out, x, **options)
    return _made(out)


def _part(group: Group, x: jax.Array) -> int:
    if x.ndim == 0 or x.shape[0] % group.size != 0:
        raise ValueError(f"an array of shape {x.shape} is not divided by {group.size} ranks along its first axis")
    return int(x.shape[0]) // group.size
