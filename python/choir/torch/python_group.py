"""python_group.py - the backend "choir" without a compiler: a ProcessGroup in Python on the package's own operations.

It stands in where the C++ part (choir_torch.cpp) cannot be built, and does what torch lets a group in Python do: all of
torch.distributed, DDP, functional collectives; not torch.ops.c10d, coalescing, nor the wrapper of
TORCH_DISTRIBUTED_DEBUG=DETAIL. Calls are a few microseconds slower.
"""
from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

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

class PythonWork(dist._Work):  # type: ignore[misc]
    """One operation under way; None: there was nothing to do."""

    def __init__(self, work: choir.Work | None, outputs: list[torch.Tensor], kept: Any, limit: float) -> None:
        super().__init__()
        self.work, self.outputs, self.kept, self.limit = work, outputs, kept, limit
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
            if self.work is None:
                self.future.set_result(self.outputs)
            else:
                self.work.add_done_callback(self._complete)
        return self.future

    def get_future_result(self) -> Any:
        return self.get_future().then(lambda future: 0 if self.is_success() else 2)

    def _complete(self, work: choir.Work) -> None:
        failed = self.exception()
        if failed is None:
            self.future.set_result(self.outputs)
        else:
            self.future.set_exception(failed)


# --- tensors -----------------------------------------------------------------------------------------

def _moved(tensor: torch.Tensor) -> torch.Tensor:
    """Types that are only moved go by their size."""
    if tensor.layout != torch.strided:
        raise RuntimeError(f"choir: only supports dense tensors, got {tensor.layout}")
    tensor = tensor.detach()
    if tensor.dtype in KNOWN:
        return tensor
    return tensor.view(BY_SIZE[tensor.element_size()])


def _read(tensor: torch.Tensor) -> torch.Tensor:
    """An input may be any view; elements that share memory are copied."""
    tensor = _moved(tensor)
    return tensor if 0 not in tensor.stride() or tensor.numel() < 2 else tensor.contiguous()


def _reduced(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dtype not in KNOWN:
        raise RuntimeError(f"choir: Invalid scalar type {tensor.dtype}: this type can be moved, but not reduced")
    return tensor.detach()


def _written(tensor: torch.Tensor) -> torch.Tensor:
    if 0 in tensor.stride() and tensor.numel() > 1:
        raise RuntimeError(f"choir: elements of an output tensor share memory (strides {tensor.stride()})")
    return tensor


def _single(tensors: list[torch.Tensor], op: str) -> torch.Tensor:
    if len(tensors) != 1:
        raise RuntimeError(f"choir::{op}: requires a single-element tensor list, got {len(tensors)}")
    return tensors[0]


# --- the group ---------------------------------------------------------------------------------------

class PythonGroup(dist.ProcessGroup):
    """torch calls it as it calls its own."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta, name: str) -> None:
        super().__init__(rank, size)
        self._number, self._count = rank, size
        self._name, self._desc, self._store, self._splits = name, "undefined", store, 0
        self._group = _join(store, rank, size, timeout, name)
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
        return None if wait else PythonWork(work, outputs, (args, kwargs), limit or self._group.timeout)

    def _each(self, opts: Any, outputs: list[torch.Tensor], calls: list[Callable[[], Any]]) -> Any:
        """Several calls as one work."""
        if not calls:
            return PythonWork(None, outputs, None, 0)
        try:
            with self._group.batch(async_op=True) as batch:
                for call in calls:
                    call()
        except choir.Error as error:
            raise _translated(error, self._group.timeout) from None
        work = PythonWork(batch.work, outputs, calls, self._group.timeout)
        if opts is not None and not opts.asyncOp:
            work.wait()
            return None
        return work

    # --- collectives ---

    def broadcast(self, tensors: list[torch.Tensor], opts: Any = None) -> Any:
        opts = opts if opts is not None else dist.BroadcastOptions()
        root = self._root(opts, "broadcast")
        return self._issue(opts, tensors, self._group.broadcast, _moved(_single(tensors, "broadcast")), root)

    def allreduce(self, tensors: list[torch.Tensor], opts: Any = None, timeout: Any = None) -> Any:
        opts = opts if isinstance(opts, dist.AllreduceOptions) else dist.AllreduceOptions()
        tensor = _single(tensors, "allreduce")
        if tensor.layout == torch.sparse_coo:
            return self._allreduce_sparse(tensor, opts)
        return self._issue(opts, tensors, self._group.all_reduce, _reduced(_written(tensor)), **self._op(opts.reduceOp))

    def _allreduce_sparse(self, tensor: torch.Tensor, opts: Any) -> Any:
        """Everybody's entries, everywhere, then added up; done on return."""
        if opts.reduceOp != dist.ReduceOp.SUM:
            raise RuntimeError("choir: allreduce of sparse tensors only works with ReduceOp.SUM")
        group, values = self._group, tensor._values().detach().contiguous()
        counts = torch.zeros(self._count, dtype=torch.int64)
        try:
            group.all_gather(counts, torch.tensor([tensor._nnz()]))
            indices = [torch.empty((tensor.sparse_dim(), int(n)), dtype=torch.int64) for n in counts]
            parts = [torch.empty((int(n), *values.shape[1:]), dtype=values.dtype) for n in counts]
            group.all_gather(indices, tensor._indices().contiguous())
            group.all_gather(parts, values)
        except choir.Error as error:
            raise _translated(error, group.timeout) from None
        total = torch.sparse_coo_tensor(torch.cat(indices, 1), torch.cat(parts), tensor.shape).coalesce()
        with torch.no_grad():
            tensor.copy_(total)
            tensor._coalesced_(True)
        return PythonWork(None, [tensor], None, 0) if opts.asyncOp else None

    def allreduce_coalesced(self, tensors: list[torch.Tensor], opts: Any = None) -> Any:
        opts = opts if opts is not None else dist.AllreduceCoalescedOptions()
        op = self._op(opts.reduceOp)
        return self._each(opts, tensors, [lambda t=t: self._group.all_reduce(_reduced(t), **op) for t in tensors])

    def reduce(self, tensors: list[torch.Tensor], opts: Any) -> Any:
        tensor = _reduced(_single(tensors, "reduce"))
        return self._issue(opts, tensors, self._group.reduce, tensor, self._root(opts, "reduce"), **self._op(opts.reduceOp))

    def allgather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any = None) -> Any:
        tensor = _single(inputs, "allgather")
        if len(outputs[0]) != self._count:
            raise RuntimeError(f"choir::allgather: invalid output tensor list at index 0 (expected length {self._count}, "
                               f"got {len(outputs[0])})")  # fmt: skip
        return self._issue(opts, outputs[0], self._group.all_gather, [_moved(t) for t in outputs[0]], _read(tensor))

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Any:
        return self._issue(opts, [output], self._group.all_gather, _moved(output), _read(input))

    _allgather_base = all_gather_single

    def allgather_coalesced(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any = None) -> Any:
        flat = [t for row in outputs for t in row]
        return self._each(opts, flat, [
            lambda j=j: self._group.all_gather([_moved(row[j]) for row in outputs], _read(inputs[j]))
            for j in range(len(inputs))
        ])  # fmt: skip

    def all_gather_single_coalesced(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None) -> Any:
        return self._each(opts, outputs, [
            lambda o=o, i=i: self._group.all_gather(_moved(o), _read(i)) for o, i in zip(outputs, inputs)
        ])  # fmt: skip

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def gather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any) -> Any:
        root = self._root(opts, "gather")
        outs = outputs[0] if self._number == root else []
        return self._issue(opts, outs, self._group.gather, _read(_single(inputs, "gather")),
                           [_moved(t) for t in outs] or None, root)  # fmt: skip

    def scatter(self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], opts: Any) -> Any:
        root = self._root(opts, "scatter")
        ins = [_read(t) for t in inputs[0]] if self._number == root else None
        return self._issue(opts, outputs, self._group.scatter, _moved(_single(outputs, "scatter")), ins, root)

    def reduce_scatter(self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], opts: Any = None) -> Any:
        opts = opts if opts is not None else dist.ReduceScatterOptions()
        return self._issue(opts, outputs, self._group.reduce_scatter, _reduced(_single(outputs, "reduce_scatter")),
                           [_reduced(_read(t)) for t in inputs[0]], **self._op(opts.reduceOp))  # fmt: skip

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Any:
        opts = opts if opts is not None else dist.ReduceScatterOptions()
        return self._issue(opts, [output], self._group.reduce_scatter, _reduced(output), _reduced(_read(input)),
                           **self._op(opts.reduceOp))  # fmt: skip

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None) -> Any:
        opts = opts if opts is not None else dist.ReduceScatterOptions()
        op = self._op(opts.reduceOp)
        return self._each(opts, outputs, [
            lambda o=o, i=i: self._group.reduce_scatter(_reduced(o), _reduced(_read(i)), **op) for o, i in zip(outputs, inputs)
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
        return self._issue(opts, [output], self._group.all_to_all, _moved(output), _read(input), out_lengths, in_lengths)

    alltoall_base = all_to_all_single

    def alltoall(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None) -> Any:
        return self._issue(opts, outputs, self._group.all_to_all, [_moved(t) for t in outputs], [_read(t) for t in inputs])

    def barrier(self, opts: Any = None) -> Any:
        return self._issue(opts, [], self._group.barrier)

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        try:
            self._group.monitored_barrier(name_all=wait_all_ranks, timeout=timeout.total_seconds() if timeout else None)
        except choir.Error as error:
            raise dist.DistBackendError(str(error)) from None

    # --- messages ---

    def send(self, tensors: list[torch.Tensor], to: int, tag: int = 0) -> Any:
        self._check_tag(tag)
        return self._issue(None, tensors, self._group.send, _read(_single(tensors, "send")), to, tag)

    def recv(self, tensors: list[torch.Tensor], source: int, tag: int = 0) -> Any:
        self._check_tag(tag)
        return self._issue(None, tensors, self._group.recv, _moved(_single(tensors, "recv")), source, tag)

    def recv_anysource(self, tensors: list[torch.Tensor], tag: int = 0) -> Any:
        self._check_tag(tag)
        return self._issue(None, tensors, self._group.recv_any, _moved(_single(tensors, "recv")), tag)

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

    def split_group(self, ranks: list[int], timeout: timedelta | None = None, opts: Any = None,
                    group_name: str | None = None, group_desc: str | None = None) -> PythonGroup | None:  # fmt: skip
        """A group of some of the ranks, who meet in the same store."""
        self._splits += 1
        name = group_name or f"{self._name}:split:{ranks}"
        if self._number not in ranks:
            return None
        store = dist.PrefixStore(f"{name}/{self._splits}", self._store)
        limit = timeout or timedelta(seconds=self._group.timeout)
        return PythonGroup(store, ranks.index(self._number), len(ranks), limit, name)

    splitGroup = split_group

    def abort(self) -> None:
        self._group.abort()

    def shutdown(self) -> None:
        try:
            self._group.shutdown(timeout=1.0)
        except choir.Error:
            pass


# --- meeting -----------------------------------------------------------------------------------------

def _join(store: Any, rank: int, size: int, timeout: timedelta, name: str) -> choir.Group:
    """As choir_torch.cpp does: rank 0 serves a store of ours and tells where through torch's, with a token."""
    seconds = timeout.total_seconds()
    if size == 1:
        return choir.init(store=choir.open_store("hash://"), rank=0, size=1, name=name)
    server, path = None, tempfile.mktemp(prefix="choir-token-")
    try:
        if rank == 0:
            token, attempt = secrets.token_hex(32), store.add("choir/attempts", 1)
            _write_token(path, token)
            server = choir.serve_store(token_file=path)
            store.set(f"choir/word/{attempt}", f"tcp://{server.address} {token}")
            url = f"tcp://{server.address}"
        else:
            followed = store.add(f"choir/followed/{rank}", 0)
            store.get(f"choir/word/{followed + 1}")
            attempt = store.add("choir/attempts", 0)
            url, token = store.get(f"choir/word/{attempt}").decode().split()
            store.add(f"choir/followed/{rank}", attempt - followed)
            _write_token(path, token)
        ours = choir.open_store(url, token_file=path, timeout=seconds)
        group = choir.init(store=ours, rank=rank, size=size, name=name, timeout=seconds)
        ours.add("joined", 1)  # is answered after all that was set before
        group.barrier()  # and nobody needs the store any more
        return group
    finally:
        if os.path.exists(path):
            os.unlink(path)
        if server is not None:
            server.close()


def _write_token(path: str, token: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as f:
        f.write(token + "\n")
