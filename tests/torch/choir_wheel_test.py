#!/usr/bin/env python3
# timeout: 900
"""choir_wheel_test.py - a part of PyTorch's own distributed tests, on the backend "choir", with two ranks. All of them,
beside gloo: choir_wheel_whole_test.py."""
import io
import json
import unittest

import choir_ranks

choir_ranks.need_choir_torch()

import choir_wheel  # noqa: E402
from choir_wheel_results import Results  # noqa: E402

PART = [
    "test_DistributedDataParallelCPU*", "test_all_gather_coalesced_simple", "test_all_gather_object_default_pg",
    "test_all_reduce_full_group_sum", "test_all_to_all_*full_group", "test_barrier_timeout_full_group",
    "test_batch_isend_irecv_gloo*", "test_ddp_uneven_inputs*", "test_gather_full_group", "test_monitored_barrier_gloo_rank_0*",
    "test_nccl_backend_bool_allgather", "test_reduce_full_group_max", "test_scatter_full_group", "test_send_recv_any_source",
    "test_sparse_all_reduce_sum", "test_undefined_grad_parity_unused_parameters",
]  # fmt: skip

class Ends(unittest.TestCase):
    """All ways a test can end."""

    def passes(self):
        pass

    def fails(self):
        self.fail()

    def skips(self):
        self.skipTest("why")

    def fails_in_part(self):
        for i in range(3):
            with self.subTest(i=i):
                self.assertEqual(i, 0)

    @unittest.expectedFailure
    def fails_as_expected(self):
        self.fail()

    @unittest.expectedFailure
    def passes_unexpectedly(self):
        pass


def every_end_is_told():
    out = io.StringIO()
    names = ["passes", "fails", "skips", "fails_in_part", "fails_as_expected", "passes_unexpectedly"]
    for name in names:
        Ends(name).run(Results(out))
    told = [json.loads(line) for line in out.getvalue().splitlines()]
    choir_ranks.check([(row["test"], row["what"]) for row in told],
                      list(zip(names, ["passed", "failed", "skipped", "failed", "passed", "failed"])), "what is told")  # fmt: skip


every_end_is_told()
choir_ranks.build_backend()
results = choir_wheel.run("choir", 2, PART)
print(choir_wheel.count(results))
choir_wheel.check_all_passed(results)
passed = sum(row["what"] == "passed" for row in results.values())
if passed < 15:
    raise AssertionError(f"only {passed} tests ran")
