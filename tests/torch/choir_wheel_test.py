#!/usr/bin/env python3
# timeout: 900
"""choir_wheel_test.py - a part of PyTorch's own distributed tests, on the backend "choir", with two ranks. All of them,
beside gloo: choir_wheel_whole_test.py."""
import choir_ranks

choir_ranks.need_choir_torch()

import choir_wheel  # noqa: E402

PART = [
    "test_DistributedDataParallelCPU*", "test_all_gather_coalesced_simple", "test_all_gather_object_default_pg",
    "test_all_reduce_full_group_sum", "test_all_to_all_*full_group", "test_barrier_timeout_full_group",
    "test_batch_isend_irecv_gloo*", "test_ddp_uneven_inputs*", "test_gather_full_group", "test_monitored_barrier_gloo_rank_0*",
    "test_nccl_backend_bool_allgather", "test_reduce_full_group_max", "test_scatter_full_group", "test_send_recv_any_source",
    "test_sparse_all_reduce_sum", "test_undefined_grad_parity_unused_parameters",
]  # fmt: skip

choir_ranks.build_backend()
results = choir_wheel.run("choir", 2, PART)
print(choir_wheel.count(results))
choir_wheel.check_all_passed(results)
passed = sum(row["what"] == "passed" for row in results.values())
if passed < 15:
    raise AssertionError(f"only {passed} tests ran")
