"""python_group.py - the backend "choir" without a compiler: a ProcessGroup in Python on the package's own operations.

It stands in where the C++ part (choir_torch.cpp) cannot be built, and does what torch lets a group in Python do: all of
torch.distributed, DDP, functional collectives; not torch.ops.c10d, coalescing, nor the wrapper of
TORCH_DISTRIBUTED_DEBUG=DETAIL. Calls are a few microseconds slower.
"""
from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Work

import choir

OPS = ["sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul-sum"]
BY_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
KNOWN = {
    torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32, torch.uint64, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2, torch.bool,
    torch.complex64, torch.complex128,
}  # fmt: skip


# --- errors ------------------------------------------------------------------------------------------

def _translated(error: choir.Error, limit: float) -> Exception:
    """As torch's exceptions: an argument is the caller's fault, all else the backend's."""
    if isinstance(error, (choir.InvalidError, choir.ElementTypeError, choir.UnsupportedError)):
        return RuntimeError(str(error))
    if isinstance(error, choir.NetworkError):
        return dist.DistNetworkError(str(error))
    if isinstance(error, choir.TimeoutError):
        return dist.DistBackendError(f"Timed out waiting {round(limit * 1000)}ms: {error}")
    return dist.DistBackendError(str(error))


# --- works -------------------------------------------------------------------------------------------

_here = threading.local()
PATIENCE = 1.0  # seconds; see Turns in torch_callbacks.hpp, which this does in small
END_PATIENCE = 30.0  # as docs/torch.md has it


class Turns:
    """The callbacks of one group's futures: in the order in which the operations ended, one after another."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.last = threading.Event()
        self.last.set()

    def take(self) -> tuple[threading.Event, threading.Event]:
        """What to wait for, and what to set at the end."""
        with self.lock:
            before, self.last = self.last, threading.Event()
            return before, self.last


class UnderWay:
    """The callbacks that have begun, or are about to. The end of the interpreter waits for them: it ends their threads."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.count = 0

    def add(self, more: int) -> None:
        with self.changed:
            self.count += more
            self.changed.notify_all()

    def wait(self) -> None:
        with self.changed:
            self.changed.wait_for(lambda: self.count <= 0, END_PATIENCE)


_under_way = UnderWay()
atexit.register(_under_way.wait)
os.register_at_fork(after_in_child=_under_way.__init__)  # type: ignore[misc]  # a child has none of these threads


def _await_turn(_: Any) -> None:
    before, _here.before = getattr(_here, "before", None), None
    if before is not None:
        before.wait(PATIENCE)


class PythonWork(Work):
    """One operation under way; None: there was nothing to do."""

    def __init__(self, work: choir.Work[Any] | None, outputs: list[torch.Tensor], kept: Any, limit: float, turns: Turns) -> None:
        super().__init__()
        self.work, self.outputs, self.kept, self.limit, self.turns = work, outputs, kept, limit, turns
        self.future: Any = None

    def _raise(self, error: choir.Error) -> None:
        raise _translated(error, self.limit) from None

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        seconds = timeout.total_seconds()
        if self.work is None:
            return True
        try:
            self.work.wait(seconds if seconds > 0 else None)
        except choir.TimeoutError as error:
            if not self.work.done():
                raise dist.DistBackendError(str(error)) from None
            self._raise(error)
        except choir.Error as error:
            self._raise(error)
        return True

    def is_completed(self) -> bool:
        try:
            return self.work is None or self.work.test()
        except choir.Error:
            return True

    def is_success(self) -> bool:
        return self.exception() is None

    def exception(self) -> Exception | None:
        failed = self.work.exception() if self.work is not None and self.work.done() else None
        return _translated(failed, self.limit) if failed is not None else None

    def result(self) -> list[torch.Tensor]:
        if not self.is_completed():
            raise RuntimeError("Work needs to be completed before calling result(). Should call wait() before result().")
        return self.outputs

    def synchronize(self) -> None:
        self.wait()

    def abort(self) -> None:
        if self.work is not None:
            self.work.abort()

    def _source_rank(self) -> int:
        try:
            return int(self.work.source)  # type: ignore[union-attr]
        except (AttributeError, TypeError, choir.Error):
            raise RuntimeError("sourceRank() may only be called on a receive that is done") from None

    source_rank = _source_rank

    def _get_duration(self) -> float:
        return float(self.work.duration) * 1000 if self.work is not None else 0.0

    def get_future(self) -> Any:
        if self.future is None:
            self.future = torch.futures.Future()
            self.future.add_done_callback(_await_turn)
            if self.work is None or self.work.done():
                self._complete()  # nobody has it yet
            else:
                nested = getattr(_here, "in_callback", False)  # and waited for there: it has no turn
                self.work.add_done_callback(lambda work: self._hand_over(nested))
        return self.future

    def get_future_result(self) -> Any:
        return self.get_future().then(lambda future: 0 if self.is_success() else 2)

    def _hand_over(self, nested: bool) -> None:
        """To a thread of its own: a callback may wait for one whose turn comes later, which the library's thread completes."""
        before, mine = (None, None) if nested else self.turns.take()
        _under_way.add(1)
        try:
            threading.Thread(target=self._complete_in_turn, args=(before, mine), daemon=True).start()
        except (RuntimeError, MemoryError):  # there is none to be had: here, where callbacks can wait for less
            self._complete_in_turn(before, mine)

    def _complete_in_turn(self, before: threading.Event | None, mine: threading.Event | None) -> None:
        _here.in_callback, _here.before = True, before
        try:
            self._complete()
        finally:
            _here.in_callback, _here.before = False, None
            if mine is not None:
                mine.set()
            _under_way.add(-1)

    def _complete(self) -> None:
        failed = self.exception()
        if failed is None:
            self.future.set_result(self.outputs)
        else:
            self.future.set_exception(failed)


# --- tensors -----------------------------------------------------------------------------------------

def _dense(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.layout != torch.strided:
        raise RuntimeError(f"choir: only supports dense tensors, got {tensor.layout}")
    if tensor.device.type != "cpu":
        raise RuntimeError(f"choir: unsupported device type {tensor.device}, expected cpu (without a C++ compiler choir is the "
                           "only backend of its group)")
    return tensor.detach()


def _moved(tensor: torch.Tensor) -> torch.Tensor:
    """Types that are only moved go by their size."""
    tensor = _dense(tensor)
    return tensor if tensor.dtype in KNOWN else tensor.view(BY_SIZE[tensor.element_size()])


def _read(tensor: torch.Tensor) -> torch.Tensor:
    """An input may be any view; those that are no plain memory, or share it, are copied."""
    return _moved(tensor).resolve_conj().resolve_neg().contiguous()


def _reduced(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dtype not in KNOWN:
        raise RuntimeError(f"choir: Invalid scalar type {tensor.dtype}: this type can be moved, but not reduced")
    return _dense(tensor)


def _written(tensor: torch.Tensor) -> torch.Tensor:
    tensor = _dense(tensor)
    if any(stride == 0 and length > 1 for stride, length in zip(tensor.stride(), tensor.shape)) and tensor.numel() > 0:
        raise RuntimeError(f"choir: elements of an output tensor share memory (strides {tensor.stride()})")
    if tensor.is_conj() or tensor.is_neg():
        raise RuntimeError("choir: an output tensor is a lazily conjugated or negated view; resolve it first")
    return tensor


def _filled(tensor: torch.Tensor) -> torch.Tensor:
    """An output that is moved to."""
    return _moved(_written(tensor))


def _summed(tensor: torch.Tensor) -> torch.Tensor:
    """An output of a reduction."""
    return _reduced(_written(tensor))


def _over(memory: memoryview, dtype: torch.dtype) -> torch.Tensor:
    """A tensor over it; torch refuses memory of no length."""
    shape = memory.shape or ()
    return torch.frombuffer(memory, dtype=dtype).view(shape) if memory.nbytes else torch.empty(shape, dtype=dtype)


def _single(tensors: list[torch.Tensor], op: str) -> torch.Tensor:
    if len(tensors) != 1:
        raise RuntimeError(f"choir::{op}: requires a single-element tensor list, got {len(tensors)}")
    return tensors[0]


# --- the group ---------------------------------------------------------------------------------------

if TYPE_CHECKING:

    class _Base:
        """torch's stubs describe several forms of each call; torch calls a group in Python in one of them."""

        def __init__(self, rank: int, size: int) -> None: ...

else:
    _Base = dist.ProcessGroup


class PythonGroup(_Base):
    """torch calls it as it calls its own."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta, name: str, url: str = "") -> None:
        super().__init__(rank, size)
        self._number, self._count = rank, size
        self._name, self._desc, self._store, self._splits = name, "undefined", store, 0
        self._url = url  # tells which network the ranks have in common
        self._turns = Turns()
        try:
            self._group = _join(store, rank, size, timeout, name, url)
        except choir.Error as error:
            raise _translated(error, timeout.total_seconds()) from None
        self._group.timeout = timeout.total_seconds()

    def getBackendName(self) -> str:
        return "choir"

    def getGroupName(self) -> str:
        return self._name

    def setGroupName(self, name: str) -> None:
        self._name = name

    def getGroupDesc(self) -> str:
        return self._desc

    def setGroupDesc(self, desc: str) -> None:
        self._desc = desc

    def getRank(self) -> int:
        return self._number

    def getSize(self) -> int:
        return self._count

    # --- options ---

    def _limit(self, opts: Any) -> float | None:
        seconds = opts.timeout.total_seconds() if opts is not None else 0
        return seconds if seconds > 0 else None

    @staticmethod
    def _op(op: Any) -> dict[str, Any]:
        for name in OPS:
            if op == getattr(dist.ReduceOp, name.upper().replace("-", "_")):
                return {"op": name, **({"factor": float(op.factor)} if name == "premul-sum" else {})}
        raise RuntimeError("Unhandled ReduceOp")

    def _root(self, opts: Any, op: str) -> int:
        if not 0 <= opts.rootRank < self._count:
            raise RuntimeError(f"choir::{op}: invalid root rank: {opts.rootRank}")
        return int(opts.rootRank)

    def _issue(self, opts: Any, outputs: list[torch.Tensor], call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        limit, wait = self._limit(opts), opts is not None and not opts.asyncOp
        try:
            work = call(*args, timeout=limit, async_op=not wait, **kwargs)
        except choir.Error as error:
            raise _translated(error, limit or self._group.timeout) from None
        return None if wait else PythonWork(work, outputs, (args, kwargs), limit or self._group.timeout, self._turns)

    def _each(self, opts: Any, outputs: list[torch.Tensor], calls: list[Callable[..., Any]]) -> Any:
        """Several calls as one work."""
        if not calls:
            return PythonWork(None, outputs, None, 0, self._turns)
        limit = self._limit(opts)
        try:
            with self._group.batch(async_op=True) as batch:
                for call in calls:
                    call(timeout=limit)
        except choir.Error as error:
            raise _translated(error, limit or self._group.timeout) from None
        work = PythonWork(batch.work, outputs, calls, limit or self._group.timeout, self._turns)
        if opts is not None and not opts.asyncOp:
            work.wait()
            return None
        return work

    # --- collectives ---

    def broadcast(self, tensors: list[torch.Tensor], opts: Any = None) -> Any:
        opts = opts if opts is not None else dist.BroadcastOptions()
        root = self._root(opts, "broadcast")
        tensor = _single(tensors, "broadcast")
        lent = _read(tensor) if self._number == root else _filled(tensor)
        return self._issue(opts, tensors, self._group.broadcast, lent, root)

    def allreduce(self, tensors: list[torch.Tensor], opts: Any = None, timeout: Any = None) -> Any:
        opts = opts if isinstance(opts, dist.AllreduceOptions) else dist.AllreduceOptions()
        tensor = _single(tensors, "allreduce")
        if tensor.layout == torch.sparse_coo:
            return self._allreduce_sparse(tensor, opts)
        return self._issue(opts, tensors, self._group.all_reduce, _summed(tensor), **self._op(opts.reduceOp))

    def _allreduce_sparse(self, tensor: torch.Tensor, opts: Any) -> Any:
        """Done on return."""
        if opts.reduceOp != dist.ReduceOp.SUM:
            raise RuntimeError("choir: allreduce of sparse tensors only works with ReduceOp.SUM")
        values, ndim, limit = tensor._values().detach().contiguous(), tensor.sparse_dim(), self._limit(opts)
        try:
            summed = self._group.all_reduce_sparse(tensor._indices().contiguous(), values, tensor.shape[:ndim],
                                                   values.shape[1:], timeout=limit)
        except choir.Error as error:
            raise _translated(error, limit or self._group.timeout) from None
        total = torch.sparse_coo_tensor(_over(summed.indices, torch.int64), _over(summed.values, values.dtype), tensor.shape,
                                        is_coalesced=True)
        with torch.no_grad():
            tensor.copy_(total)
            tensor._coalesced_(True)
        return PythonWork(None, [tensor], None, 0, self._turns) if opts.asyncOp else None

    def allreduce_coalesced(self, tensors: list[torch.Tensor], opts: Any = None) -> Any:
        opts = opts if opts is not None else dist.AllreduceCoalescedOptions()
        op = self._op(opts.reduceOp)
        return self._each(opts, tensors, [partial(self._group.all_reduce, _summed(t), **op) for t in tensors])

    def reduce(self, tensors: list[torch.Tensor], opts: Any) -> Any:
        tensor, root = _reduced(_single(tensors, "reduce")), self._root(opts, "reduce")
        lent = _written(tensor) if self._number == root else _read(tensor)
        return self._issue(opts, tensors, self._group.reduce, lent, root, **self._op(opts.reduceOp))

    def allgather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any = None) -> Any:
        tensor = _single(inputs, "allgather")
        if len(outputs[0]) != self._count:
            raise RuntimeError(f"choir::allgather: invalid output tensor list at index 0 (expected length {self._count}, "
                               f"got {len(outputs[0])})")  # fmt: skip
        return self._issue(opts, outputs[0], self._group.all_gather, [_filled(t) for t in outputs[0]], _read(tensor))

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Any:
        return self._issue(opts, [output], self._group.all_gather, _filled(output), _read(input))

    _allgather_base = all_gather_single

    def allgather_coalesced(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any = None) -> Any:
        flat = [t for row in outputs for t in row]
        return self._each(opts, flat, [
            partial(self._group.all_gather, [_filled(row[j]) for row in outputs], _read(inputs[j]))
            for j in range(len(inputs))
        ])  # fmt: skip

    def all_gather_single_coalesced(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None) -> Any:
        return self._each(opts, outputs, [
            partial(self._group.all_gather, _filled(o), _read(i)) for o, i in zip(outputs, inputs)
        ])  # fmt: skip

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def gather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any) -> Any:
        root = self._root(opts, "gather")
        outs = outputs[0] if self._number == root else []
        return self._issue(opts, outs, self._group.gather, _read(_single(inputs, "gather")),
                           [_filled(t) for t in outs] or None, root)  # fmt: skip

    def scatter(self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], opts: Any) -> Any:
        root = self._root(opts, "scatter")
        ins = [_read(t) for t in inputs[0]] if self._number == root else None
        return self._issue(opts, outputs, self._group.scatter, _filled(_single(outputs, "scatter")), ins, root)

    def reduce_scatter(self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], opts: Any = None) -> Any:
        opts = opts if opts is not None else dist.ReduceScatterOptions()
        return self._issue(opts, outputs, self._group.reduce_scatter, _summed(_single(outputs, "reduce_scatter")),
                           [_reduced(_read(t)) for t in inputs[0]], **self._op(opts.reduceOp))  # fmt: skip

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Any:
        opts = opts if opts is not None else dist.ReduceScatterOptions()
        return self._issue(opts, [output], self._group.reduce_scatter, _summed(output), _reduced(_read(input)),
                           **self._op(opts.reduceOp))  # fmt: skip

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None) -> Any:
        opts = opts if opts is not None else dist.ReduceScatterOptions()
        op = self._op(opts.reduceOp)
        return self._each(opts, outputs, [
            partial(self._group.reduce_scatter, _summed(o), _reduced(_read(i)), **op) for o, i in zip(outputs, inputs)
        ])  # fmt: skip

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _lengths(self, tensor: torch.Tensor, splits: list[int]) -> list[int]:
        rows = tensor.shape[0] if tensor.dim() > 0 else 1
        row = tensor.numel() // rows if rows else 0
        if not splits:
            splits = [rows // self._count] * self._count
        if len(splits) != self._count:
            raise RuntimeError("choir::alltoall_base: Number of tensor splits not equal to group size")
        if sum(splits) != rows:
            raise RuntimeError("choir::alltoall_base: Split sizes doesn't match total dim 0 size")
        return [split * row for split in splits]

    def all_to_all_single(self, output: torch.Tensor, input: torch.Tensor, output_splits: list[int], input_splits: list[int],
                          opts: Any = None) -> Any:  # fmt: skip
        out_lengths = in_lengths = None
        if output_splits or input_splits:
            out_lengths, in_lengths = self._lengths(output, output_splits), self._lengths(input, input_splits)
        return self._issue(opts, [output], self._group.all_to_all, _filled(output), _read(input), out_lengths, in_lengths)

    alltoall_base = all_to_all_single

    def alltoall(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None) -> Any:
        return self._issue(opts, outputs, self._group.all_to_all, [_filled(t) for t in outputs], [_read(t) for t in inputs])

    def barrier(self, opts: Any = None) -> Any:
        return self._issue(opts, [], self._group.barrier)

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        seconds = timeout.total_seconds() if timeout is not None else None
        if seconds == 0 and self._number == 0 and self._count > 1:  # as gloo has it
            raise dist.DistBackendError("[Rank 0]: Rank 0 timed out in monitoredBarrier after 0 ms.")
        try:
            self._group.monitored_barrier(name_all=wait_all_ranks, timeout=0.001 if seconds == 0 else seconds)
        except choir.Error as error:
            raise dist.DistBackendError(str(error)) from None

    # --- messages ---

    def send(self, tensors: list[torch.Tensor], to: int, tag: int = 0) -> Any:
        self._check_tag(tag)
        return self._issue(None, tensors, self._group.send, _read(_single(tensors, "send")), to, tag)

    def recv(self, tensors: list[torch.Tensor], source: int, tag: int = 0) -> Any:
        self._check_tag(tag)
        return self._issue(None, tensors, self._group.recv, _filled(_single(tensors, "recv")), source, tag)

    def recv_anysource(self, tensors: list[torch.Tensor], tag: int = 0) -> Any:
        self._check_tag(tag)
        return self._issue(None, tensors, self._group.recv_any, _filled(_single(tensors, "recv")), tag)

    @staticmethod
    def _check_tag(tag: int) -> None:
        if tag < 0:
            raise RuntimeError("Tag must be nonnegative")

    # --- state ---

    def set_timeout(self, timeout: timedelta) -> None:
        self._group.timeout = timeout.total_seconds()

    def _get_sequence_number_for_group(self) -> int:
        return int(self._group.collective_sequence)

    def _set_sequence_number_for_group(self) -> None:
        pass

    def split_group(self, new_ranks: list[int], timeout: timedelta | None = None, opts: Any = None, group_name: str | None = None,
                    group_desc: str | None = None, device_types: Any = None) -> PythonGroup | None:  # fmt: skip
        """A group of some of the ranks, who meet in the same store."""
        self._splits += 1
        name = group_name or f"{self._name}:split:{new_ranks}"
        if self._number not in new_ranks:
            return None
        store = PrefixStore(f"{name}/{self._splits}", self._store)
        limit = timeout or timedelta(seconds=self._group.timeout)
        return PythonGroup(store, new_ranks.index(self._number), len(new_ranks), limit, name, self._url)

    splitGroup = split_group

    def abort(self) -> None:
        self._group.abort()

    def shutdown(self) -> None:
        try:
            self._group.shutdown(timeout=1.0)
        except choir.Error:
            pass


# --- meeting -----------------------------------------------------------------------------------------

def _join(store: Any, rank: int, size: int, timeout: timedelta, name: str, url: str) -> choir.Group:
    group = choir.init(url or None, rank=rank, size=size, name=name, timeout=timeout.total_seconds(),
                       carry=partial(_carry, store, rank))  # fmt: skip
    _all_alike(group)
    return group


def _carry(store: Any, rank: int, word: str | None) -> str | None:
    """Through torch's store, as the compiled part does (torch_meeting.hpp): it may hold words of earlier groups."""
    if word is not None:
        store.set(f"choir/word/{store.add('choir/attempts', 1)}", word)
        return None
    followed = store.add(f"choir/followed/{rank}", 0)
    store.get(f"choir/word/{followed + 1}")  # waits
    attempt = store.add("choir/attempts", 0)
    store.add(f"choir/followed/{rank}", attempt - followed)
    return str(store.get(f"choir/word/{attempt}").decode())


def _all_alike(group: choir.Group) -> None:
    """All ranks are here, which the compiled part does not ask: where some have that the first call tells."""
    try:
        group.barrier()
    except choir.MismatchError as error:
        raise dist.DistBackendError(
            f"choir.torch: this rank has no compiler, so a group in Python stands in for the compiled part, which other "
            f"ranks have: expected one or the other on all ({error})"
        ) from None
