"""Collectives of Python objects: methods of Group, written on its operations on bytes.

Values are like those of JSON: None, bool, int, float, str, and lists and dictionaries of them, whose keys are str; what JSON
would change, as tuples, other keys, and classes derived from these, is refused. `pickle=True` takes anything that can be pickled, on the
sending side to send it and on the receiving side to accept it: unpickling runs whatever code the sender chose, so a receiver that
did not ask for it refuses.
"""
from __future__ import annotations

import array
import json
import pickle as pickling
from collections.abc import Sequence
from typing import Any

from choir._choir import Group

JSON, PICKLE = b"J", b"P"
KEPT = (type(None), bool, int, float, str)


def _refuse_changed(value: Any) -> None:
    """What JSON writes, and reads as something else: also what only derives from one of its types. `value` could be written, so
    that it has no cycles; it may be deep."""
    rest = [value]
    while rest:
        value = rest.pop()
        kind = type(value)
        if kind is dict:
            for key in value:
                if type(key) is not str:  # pylint: disable=unidiomatic-typecheck
                    raise TypeError(f"the key {key!r} ({type(key).__qualname__}) would arrive as a str")
            rest.extend(value.values())
        elif kind is list:
            rest.extend(value)
        elif kind not in KEPT:
            raise TypeError(f"{value!r} ({kind.__qualname__}) would arrive as something else")


def encode(value: Any, pickle: bool) -> bytes:
    """The bytes that stand for a value; the first one says how."""
    if pickle:
        return PICKLE + pickling.dumps(value)
    try:
        data = JSON + json.dumps(value, separators=(",", ":")).encode()
        _refuse_changed(value)
        return data
    except TypeError as e:
        raise TypeError(f"{e}; pickle=True sends it, if all ranks ask for it") from None
    except RecursionError:
        raise ValueError("lists and dictionaries in one another, deeper than JSON is written") from None


def decode(data: bytes, pickle: bool) -> Any:
    """The value again."""
    if data[:1] == JSON:
        return json.loads(data[1:])
    if data[:1] != PICKLE:
        raise ValueError(f"not an object that was sent by Choir: it begins with {data[:1]!r}")
    if not pickle:
        raise ValueError("a pickled object has come, and pickle=True was not given: unpickling runs the sender's code")
    return pickling.loads(data[1:])


def _refuse_batch(group: Group, method: str) -> None:
    if group._in_batch():  # pylint: disable=protected-access
        raise NotImplementedError(f"{method}: in a batch: it is two operations, and needs the first to be done")


def _sizes(count: int = 1, value: int = 0) -> array.array[int]:
    return array.array("q", [value] * count)


def all_gather_object(self: Group, value: Any, *, pickle: bool = False, timeout: float | None = None) -> list[Any]:
    """all_gather_object(value, *, pickle=False, timeout=None) -> list

    Everybody's value, in rank order, on every rank.
    """
    _refuse_batch(self, "all_gather_object")
    data = encode(value, pickle)
    sizes = _sizes(self.size)
    self.all_gather(sizes, _sizes(value=len(data)), timeout=timeout)
    all_of_them = [bytearray(n) for n in sizes]
    self.all_gather(all_of_them, data, timeout=timeout)
    return [decode(bytes(d), pickle) for d in all_of_them]


def gather_object(self: Group, value: Any, root: int = 0, *, pickle: bool = False,
                  timeout: float | None = None) -> list[Any] | None:
    """gather_object(value, root=0, *, pickle=False, timeout=None) -> list | None

    Everybody's value, in rank order, on the root; None on the others.
    """
    _refuse_batch(self, "gather_object")
    data = encode(value, pickle)
    at_root = self.rank == root
    sizes = [_sizes() for _ in range(self.size)] if at_root else None
    self.gather(_sizes(value=len(data)), sizes, root, timeout=timeout)
    all_of_them = None if sizes is None else [bytearray(n[0]) for n in sizes]
    self.gather(data, all_of_them, root, timeout=timeout)
    return None if all_of_them is None else [decode(bytes(d), pickle) for d in all_of_them]


def broadcast_object(self: Group, value: Any = None, root: int = 0, *, pickle: bool = False,
                     timeout: float | None = None) -> Any:
    """broadcast_object(value=None, root=0, *, pickle=False, timeout=None)

    The root's value, on every rank.
    """
    _refuse_batch(self, "broadcast_object")
    data = bytearray(encode(value, pickle)) if self.rank == root else bytearray()
    size = _sizes(value=len(data))
    self.broadcast(size, root, timeout=timeout)
    if self.rank != root:
        data = bytearray(size[0])
    self.broadcast(data, root, timeout=timeout)
    return decode(bytes(data), pickle)


def scatter_object(self: Group, values: Sequence[Any] | None = None, root: int = 0, *, pickle: bool = False,
                   timeout: float | None = None) -> Any:
    """scatter_object(values=None, root=0, *, pickle=False, timeout=None)

    To rank r the root's values[r].
    """
    _refuse_batch(self, "scatter_object")
    parts, sizes = None, None
    if self.rank == root:
        if values is None or len(values) != self.size:
            raise ValueError(f"values: the root has to give one for each of {self.size} ranks")
        parts = [encode(v, pickle) for v in values]
        sizes = [_sizes(value=len(p)) for p in parts]
    size = _sizes()
    self.scatter(size, sizes, root, timeout=timeout)
    data = bytearray(size[0])
    self.scatter(data, parts, root, timeout=timeout)
    return decode(bytes(data), pickle)


def send_object(self: Group, value: Any, to: int, tag: int = 0, *, pickle: bool = False,
                timeout: float | None = None) -> None:
    """send_object(value, to, tag=0, *, pickle=False, timeout=None)

    Send a value to a rank that receives it with recv_object().
    """
    _refuse_batch(self, "send_object")
    data = encode(value, pickle)
    self.send(_sizes(value=len(data)), to, tag, timeout=timeout)
    self.send(data, to, tag, timeout=timeout)


def recv_object(self: Group, source: int, tag: int = 0, *, pickle: bool = False, timeout: float | None = None) -> Any:
    """recv_object(source, tag=0, *, pickle=False, timeout=None)

    The value that a rank sends.
    """
    _refuse_batch(self, "recv_object")
    size = _sizes()
    self.recv(size, source, tag, timeout=timeout)
    data = bytearray(size[0])
    self.recv(data, source, tag, timeout=timeout)
    return decode(bytes(data), pickle)


for _method in (all_gather_object, gather_object, broadcast_object, scatter_object, send_object, recv_object):
    _method.__qualname__ = f"Group.{_method.__name__}"
    setattr(Group, _method.__name__, _method)
