"""What the extension has for choir.nccl: PyTorch's torch._C._nccl_*, and more. Types are in _nccl.pyi."""
from choir._choir import (
    _nccl_all_gather, _nccl_all_reduce, _nccl_broadcast, _nccl_comm_abort, _nccl_comm_close, _nccl_comm_error,
    _nccl_comm_finalize, _nccl_comm_info, _nccl_init_rank, _nccl_is_usable, _nccl_library, _nccl_premul_sum,
    _nccl_redop_destroy, _nccl_reduce, _nccl_reduce_scatter, _nccl_unique_id, _nccl_version, _nccl_version_suffix)
