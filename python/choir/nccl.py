"""Collectives in the manner of torch.cuda.nccl, on host memory.

    from choir import nccl

    nccl.all_reduce([a, b, c])                     # three ranks, all in this process

    uid = nccl.unique_id()                         # in one process; hand it to the others
    comm = nccl.init_rank(num_ranks, uid, rank)    # in all
    nccl.all_reduce([a], comms=comm)

A call takes lists, a tensor for each rank that the caller is: numpy arrays, PyTorch tensors in host memory,
anything with the buffer protocol or DLPack. Without `comms` the inputs are the ranks of a communicator that exists for
the call alone. With `comms`, one for each input, lengths and roots are those of the communicator, not of the list. A
call is done on return, unless it is given async_op=True. docs/nccl-module.md has the whole of it.
"""
from __future__ import annotations

import typing
import warnings
from collections.abc import Container, Iterable, Sequence

from choir import _choir

if typing.TYPE_CHECKING:
    from collections.abc import Collection

    from choir._choir import Tensor, Timeout, Work

__all__ = ["all_gather", "all_reduce", "broadcast", "reduce", "reduce_scatter"]

SUM = 0
PROD = 1
MAX = 2
MIN = 3
AVG = 4

# --- exceptions ------------------------------------------------------------------------------------
#
# Each line of the table in docs/nccl-module.md has a class of its own. All are choir.Error; those that PyTorch's module
# raises as RuntimeError are that too.


class SignatureError(_choir.Error, TypeError):
    """Arguments are missing, too many, or not of the kind that the function takes."""

    index: int | None = None


class SequenceError(_choir.Error, TypeError):
    """What should be a sequence of tensors is none."""

    index: int | None = None


class NotATensorError(_choir.Error, TypeError):
    """An element of a sequence is no tensor; `index` says which."""

    index: int | None = None


class NotACommError(_choir.Error, TypeError):
    """`comms` is neither None, a communicator nor a sequence of them."""

    index: int | None = None


class IdTypeError(_choir.Error, TypeError):
    """An id is not bytes: text is not turned into bytes for you."""

    index: int | None = None


class ArgumentError(_choir.InvalidError, RuntimeError):
    """A value does not fit. `index` is that of the element it is about, None if it is about none."""

    index: int | None = None


class RootError(ArgumentError):
    """`root` is no rank of the communicator."""


class StreamCountError(ArgumentError):
    """There are not as many streams as inputs."""


class StreamError(_choir.ElementTypeError, RuntimeError):
    """`streams` is no sequence, or has something that is neither a stream nor None."""

    index: int | None = None


class CapsuleError(ArgumentError):
    """A capsule is not that of a communicator of this process."""


class CommStateError(_choir.StateError, RuntimeError):
    """A communicator is finalized or destroyed."""

    index: int | None = None


class CommCountError(ArgumentError):
    """There are not as many communicators as inputs."""


class CommSizeError(ArgumentError):
    """The communicators of a call have different numbers of ranks."""


class EmptyInputError(ArgumentError):
    """There are no inputs."""


class OutputCountError(ArgumentError):
    """There are not as many outputs as inputs."""


class NotHostError(ArgumentError):
    """A tensor is not dense host memory."""


class DeviceError(NotHostError):
    """An output is on another device than its input."""


class ReadOnlyError(ArgumentError):
    """An output, or an input of a call in place, cannot be written to."""


class DtypeError(_choir.ElementTypeError, RuntimeError):
    """A tensor has another type of elements than the first input."""

    index: int | None = None


class ContiguousError(ArgumentError):
    """A tensor is not contiguous."""


class InputSizeError(ArgumentError):
    """An input has not as many elements as the first."""


class OutputSizeError(ArgumentError):
    """An output has not as many elements as follows from its input and the number of ranks."""


class UniqueError(ArgumentError):
    """Two inputs are for one rank: a communicator twice, or results in the same memory."""


class OverlapError(ArgumentError):
    """An output overlaps an input, and is not in place."""


class UnconvertibleTypeError(_choir.ElementTypeError, RuntimeError):
    """A tensor's type of elements has no counterpart here."""

    index: int | None = None


class OpError(ArgumentError):
    """No such reduction, or not of this communicator."""


class OpDtypeError(_choir.ElementTypeError, RuntimeError):
    """The reduction is not defined on this type of elements."""

    index: int | None = None


class IdLengthError(ArgumentError):
    """An id has not 128 bytes."""


_failures: dict[type[_choir.Error], type[_choir.Error]] = {}


def _and_runtime_error(plain: type[_choir.Error]) -> type[_choir.Error]:
    """The class of that name which is a RuntimeError too. It is no attribute of this module, where TimeoutError is Python's, so
    that pickle has to be told where it is from."""
    if plain not in _failures:
        _failures[plain] = type(plain.__name__, (plain, RuntimeError), {
            "__module__": __name__, "__doc__": plain.__doc__,
            "__reduce__": lambda self: (_again, (plain, self.args, self.__dict__))})
    return _failures[plain]


def _again(plain: type[_choir.Error], args: tuple[typing.Any, ...], record: dict[str, typing.Any]) -> _choir.Error:
    """An error of that class as it was."""
    made = _and_runtime_error(plain)(*args)
    made.__dict__.update(record)
    return made


def _failure(error: _choir.Error, rule: str | None, index: int) -> _choir.Error:
    """The library's `error` as one of this module: of the rule's class, or of one that is a RuntimeError too."""
    kind = globals()[rule] if rule is not None else _and_runtime_error(type(error))
    made: _choir.Error = kind(*error.args)
    made.__dict__.update(error.__dict__)
    if rule is not None:
        made.__dict__["index"] = index if index >= 0 else None
    return made


# --- versions and ids ------------------------------------------------------------------------------

def version(*, compiled: bool = False, library: str = "choir") -> tuple[int | str, ...]:
    """(major, minor, patch), and a suffix if there is one, of the library that is loaded.

    `compiled`: of the one this module was compiled against. `library="nccl"`: of NCCL itself, where it is installed.
    """
    if _is_nccl(library):
        code = _choir._nccl_library()[1]
        unit = 10000 if code >= 10000 else 1000  # NCCL counted otherwise up to 2.8
        return code // unit, code % unit // 100, code % 100
    code = _choir._nccl_version(compiled)
    suffix = version_suffix().decode()
    numbers = (code >> 32, code >> 16 & 0xffff, code & 0xffff)
    return (*numbers, suffix) if suffix else numbers


def version_suffix() -> bytes:
    """What follows the numbers of the version: b"" or b"rc1"."""
    return _choir._nccl_version_suffix()


def library_path() -> str | None:
    """Where NCCL itself is, if it is installed (or CHOIR_LIBNCCL names it)."""
    try:
        return _choir._nccl_library()[0]
    except NotImplementedError:
        return None


def unique_id(*, library: str = "choir") -> bytes:
    """A new id, of 128 bytes: where ranks meet, and the secret that they need there.

    They meet in this process, which must live until they have. `library="nccl"`: an id of NCCL's own, for NCCL.
    """
    return _choir._nccl_unique_id(_is_nccl(library))


def _is_nccl(library: str) -> bool:
    if library not in ("choir", "nccl"):
        raise ValueError(f"library: {library!r}, expected \"choir\" or \"nccl\"")
    return library == "nccl"


# --- communicators ---------------------------------------------------------------------------------

def init_rank(num_ranks: int, uid: bytes, rank: int, *, timeout: Timeout = None) -> typing.Any:
    """Become a rank of the communicator whose id this is; returns, when all ranks have come, a capsule.

    Who drops the capsule leaves the communicator. `timeout` is in seconds: None for five minutes, inf for none.
    """
    return _choir._nccl_init_rank(num_ranks, uid, rank, timeout)


class Communicator:
    """A communicator as an object: a capsule with methods, to be passed as `comms`, alone or in a list.

        with nccl.Communicator(num_ranks, uid, rank) as comm:
            nccl.all_reduce([a], comms=comm)
    """

    def __init__(self, num_ranks: int, uid: bytes, rank: int, *, timeout: Timeout = None):
        self.capsule = init_rank(num_ranks, uid, rank, timeout=timeout)

    @classmethod
    def of(cls, capsule: typing.Any) -> Communicator:
        """The same for a capsule of init_rank()."""
        _choir._nccl_comm_info(capsule)
        made = cls.__new__(cls)
        made.capsule = capsule
        return made

    @property
    def rank(self) -> int:
        """Which rank this is."""
        return _choir._nccl_comm_info(self.capsule)[0]

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return _choir._nccl_comm_info(self.capsule)[1]

    def finalize(self, timeout: Timeout = None) -> None:
        """Wait until nothing is under way, and take no more calls."""
        _choir._nccl_comm_finalize(self.capsule, timeout)

    def abort(self) -> None:
        """End what is under way on all ranks, and all that may come, with an error. From any thread."""
        _choir._nccl_comm_abort(self.capsule)

    def destroy(self) -> None:
        """Leave, as soon as no call is under way; calls with async_op are waited for. Again: nothing."""
        _choir._nccl_comm_close(self.capsule)

    def error(self) -> _choir.Error | None:
        """What the communicator has failed with, None if it has not."""
        return _choir._nccl_comm_error(self.capsule)

    def premul_sum(self, factor: Tensor, *, lent: bool = False) -> int:
        """An `op` for calls with this communicator: the sum of this rank's elements times `factor`.

        `factor` is a tensor of one element, of the type of the elements. `lent`: it is read in each call, and its memory held
        until redop_destroy(); otherwise now.
        """
        return _choir._nccl_premul_sum(self.capsule, factor, lent)

    def redop_destroy(self, op: int) -> None:
        """Forget what premul_sum() gave."""
        _choir._nccl_redop_destroy(self.capsule, op)

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, kind: object, *unused: object) -> None:
        _choir._nccl_comm_close(self.capsule, kind is not None)


def clear_cache() -> None:
    """Nothing: communicators of calls without `comms` are not kept. For programs that want to be sure."""


# --- calls -----------------------------------------------------------------------------------------
#
# With `async_op` a call returns when it has begun, with a Work for each input, whose memory is lent until that is done. Without
# `comms` it is done on return, and the list is empty.

def _check(tensors: object, name: str) -> None:
    """A collection, and not a tensor, which may look like one."""
    if isinstance(tensors, (list, tuple)):
        return
    if not isinstance(tensors, Container) or hasattr(tensors, "__dlpack__") or _has_buffer(tensors):
        raise SequenceError(f"{name} should be a collection of tensors, not {type(tensors)}")


def _has_buffer(thing: typing.Any) -> bool:
    try:
        memoryview(thing).release()
    except TypeError:
        return False
    return True


def is_available(tensors: Iterable[object]) -> bool:
    """Whether all of them are contiguous host memory of a known type, so that the calls here take them."""
    return all(_choir._nccl_is_usable(t) for t in tensors)


@typing.overload
def all_reduce(inputs: Collection[Tensor], outputs: Collection[Tensor] | None = ..., op: int = ...,
               streams: Sequence[typing.Any] | None = ..., comms: typing.Any = ..., *, timeout: Timeout = ...,
               async_op: typing.Literal[False] = ...) -> None: ...


@typing.overload
def all_reduce(inputs: Collection[Tensor], outputs: Collection[Tensor] | None = ..., op: int = ...,
               streams: Sequence[typing.Any] | None = ..., comms: typing.Any = ..., *, timeout: Timeout = ...,
               async_op: typing.Literal[True]) -> list[Work[None]]: ...


@typing.overload
def all_reduce(inputs: Collection[Tensor], outputs: Collection[Tensor] | None = ..., op: int = ...,
               streams: Sequence[typing.Any] | None = ..., comms: typing.Any = ..., *, timeout: Timeout = ...,
               async_op: bool) -> list[Work[None]] | None: ...


def all_reduce(inputs: Collection[Tensor], outputs: Collection[Tensor] | None = None, op: int = SUM,
               streams: Sequence[typing.Any] | None = None, comms: typing.Any = None, *, timeout: Timeout = None,
               async_op: bool = False) -> list[Work[None]] | None:
    """outputs[i] becomes the reduction of all ranks' inputs; without outputs it is in place."""
    _check(inputs, "inputs")
    if outputs is None:
        outputs = inputs
    _check(outputs, "outputs")
    return _choir._nccl_all_reduce(inputs, outputs, op, streams, comms, timeout, async_op)


def _of_root(inputs: Collection[Tensor], outputs: Sequence[Tensor], root: int, comms: typing.Any) -> Tensor | None:
    """The output beside the root's input; None if the root is not here, or is none, which the call itself tells."""
    if len(outputs) != len(inputs):
        raise OutputCountError(f"reduce: {len(outputs)} outputs for {len(inputs)} inputs, expected one, or as many")
    ranks: Iterable[int] = range(len(outputs))
    if comms is not None:
        listed = comms if isinstance(comms, Sequence) else [comms]
        ranks = [_choir._nccl_comm_info(getattr(comm, "capsule", comm))[0] for comm in listed]
    return dict(zip(ranks, outputs)).get(root)


@typing.overload
def reduce(inputs: Collection[Tensor], output: typing.Any = ..., root: int = ..., op: int = ...,
           streams: Sequence[typing.Any] | None = ..., comms: typing.Any = ..., *, outputs: Sequence[Tensor] | None = ...,
           timeout: Timeout = ...,
           async_op: typing.Literal[False] = ...) -> None: ...


@typing.overload
def reduce(inputs: Collection[Tensor], output: typing.Any = ..., root: int = ..., op: int = ...,
           streams: Sequence[typing.Any] | None = ..., comms: typing.Any = ..., *, outputs: Sequence[Tensor] | None = ...,
           timeout: Timeout = ...,
           async_op: typing.Literal[True]) -> list[Work[None]]: ...


@typing.overload
def reduce(inputs: Collection[Tensor], output: typing.Any = ..., root: int = ..., op: int = ...,
           streams: Sequence[typing.Any] | None = ..., comms: typing.Any = ..., *, outputs: Sequence[Tensor] | None = ...,
           timeout: Timeout = ...,
           async_op: bool) -> list[Work[None]] | None: ...


def reduce(inputs: Collection[Tensor], output: typing.Any = None, root: int = 0, op: int = SUM,
           streams: Sequence[typing.Any] | None = None, comms: typing.Any = None, *, outputs: Sequence[Tensor] | None = None,
           timeout: Timeout = None, async_op: bool = False) -> list[Work[None]] | None:
    """`output` of the root, a rank, becomes the reduction of all ranks' inputs; without it, the root's input does."""
    _check(inputs, "inputs")
    if outputs is not None:
        if output is not None:
            raise ValueError("output and outputs are both given: expected one; outputs is deprecated")
        warnings.warn("reduce: outputs is deprecated, output takes the tensor itself", FutureWarning, stacklevel=2)
        output = _of_root(inputs, outputs, root, comms)
    elif isinstance(output, Sequence) and not _has_buffer(output):
        warnings.warn("reduce: a sequence as output is deprecated, output takes the tensor itself", FutureWarning,
                      stacklevel=2)
        output = _of_root(inputs, output, root, comms)
    return _choir._nccl_reduce(inputs, output, root, op, streams, comms, timeout, async_op)


@typing.overload
def broadcast(inputs: Collection[Tensor], root: int = ..., streams: Sequence[typing.Any] | None = ...,
              comms: typing.Any = ..., *, timeout: Timeout = ...,
              async_op: typing.Literal[False] = ...) -> None: ...


@typing.overload
def broadcast(inputs: Collection[Tensor], root: int = ..., streams: Sequence[typing.Any] | None = ...,
              comms: typing.Any = ..., *, timeout: Timeout = ...,
              async_op: typing.Literal[True]) -> list[Work[None]]: ...


@typing.overload
def broadcast(inputs: Collection[Tensor], root: int = ..., streams: Sequence[typing.Any] | None = ...,
              comms: typing.Any = ..., *, timeout: Timeout = ...,
              async_op: bool) -> list[Work[None]] | None: ...


def broadcast(inputs: Collection[Tensor], root: int = 0, streams: Sequence[typing.Any] | None = None,
              comms: typing.Any = None, *, timeout: Timeout = None, async_op: bool = False) -> list[Work[None]] | None:
    """All inputs become that of the root, a rank."""
    _check(inputs, "inputs")
    return _choir._nccl_broadcast(inputs, root, streams, comms, timeout, async_op)


@typing.overload
def all_gather(inputs: Collection[Tensor], outputs: Collection[Tensor], streams: Sequence[typing.Any] | None = ...,
               comms: typing.Any = ..., *, timeout: Timeout = ...,
               async_op: typing.Literal[False] = ...) -> None: ...


@typing.overload
def all_gather(inputs: Collection[Tensor], outputs: Collection[Tensor], streams: Sequence[typing.Any] | None = ...,
               comms: typing.Any = ..., *, timeout: Timeout = ...,
               async_op: typing.Literal[True]) -> list[Work[None]]: ...


@typing.overload
def all_gather(inputs: Collection[Tensor], outputs: Collection[Tensor], streams: Sequence[typing.Any] | None = ...,
               comms: typing.Any = ..., *, timeout: Timeout = ...,
               async_op: bool) -> list[Work[None]] | None: ...


def all_gather(inputs: Collection[Tensor], outputs: Collection[Tensor], streams: Sequence[typing.Any] | None = None,
               comms: typing.Any = None, *, timeout: Timeout = None, async_op: bool = False) -> list[Work[None]] | None:
    """outputs[i], as many times as long as there are ranks, becomes all inputs in the order of ranks."""
    _check(inputs, "inputs")
    _check(outputs, "outputs")
    return _choir._nccl_all_gather(inputs, outputs, streams, comms, timeout, async_op)


@typing.overload
def reduce_scatter(inputs: Collection[Tensor], outputs: Collection[Tensor], op: int = ...,
                   streams: Sequence[typing.Any] | None = ..., comms: typing.Any = ..., *, timeout: Timeout = ...,
                   async_op: typing.Literal[False] = ...) -> None: ...


@typing.overload
def reduce_scatter(inputs: Collection[Tensor], outputs: Collection[Tensor], op: int = ...,
                   streams: Sequence[typing.Any] | None = ..., comms: typing.Any = ..., *, timeout: Timeout = ...,
                   async_op: typing.Literal[True]) -> list[Work[None]]: ...


@typing.overload
def reduce_scatter(inputs: Collection[Tensor], outputs: Collection[Tensor], op: int = ...,
                   streams: Sequence[typing.Any] | None = ..., comms: typing.Any = ..., *, timeout: Timeout = ...,
                   async_op: bool) -> list[Work[None]] | None: ...


def reduce_scatter(inputs: Collection[Tensor], outputs: Collection[Tensor], op: int = SUM,
                   streams: Sequence[typing.Any] | None = None, comms: typing.Any = None, *,
                   timeout: Timeout = None, async_op: bool = False) -> list[Work[None]] | None:
    """outputs[i] becomes its rank's share of the reduction, one of as many as there are ranks."""
    _check(inputs, "inputs")
    _check(outputs, "outputs")
    return _choir._nccl_reduce_scatter(inputs, outputs, op, streams, comms, timeout, async_op)
