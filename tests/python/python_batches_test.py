#!/usr/bin/env python3
"""python_batches_test.py - batches that are not ended where they were begun: dropped, closed by another thread, left open by one
that has ended, begun or ended by the code that reading a buffer runs."""
# timeout: 60
import gc
import os
import threading

import python_tests
from python_tests import check, raises

os.environ.setdefault("PYTHONMALLOC", "debug")  # what is freed too early, or twice, is told at once
python_tests.need_choir()

import numpy as np  # noqa: E402 # pylint: disable=wrong-import-position

import choir  # noqa: E402 # pylint: disable=wrong-import-position


def sums(group):
    """Calls are done on return again."""
    check(group.all_reduce(np.ones(2)).tolist(), [group.size] * 2, "a sum")
    with group.batch():
        group.all_reduce(a := np.ones(2))
    check(a.tolist(), [group.size] * 2, "a sum in a batch")


def elsewhere(call, *args):
    """What it gives, or raises, on another thread."""
    got = []

    def catch():
        try:
            got.append(call(*args))
        except choir.Error as e:
            got.append(e)

    thread = threading.Thread(target=catch)
    thread.start()
    thread.join()
    return got[0]


def dropped(group):
    a = np.ones(2)
    batch = group.batch()
    batch.__enter__()
    group.all_reduce(a)
    del batch
    check(a.tolist(), [1, 1], "what was never issued")
    sums(group)


class Holder(np.ndarray):
    """An array with attributes."""


def dropped_in_a_cycle(group):
    a = np.ones(2).view(Holder)
    a.batch = group.batch()
    a.batch.__enter__()
    group.all_reduce(a)
    del a
    gc.collect()
    sums(group)


def in_a_batch(group):
    with group.batch():
        group.all_reduce(np.ones(2))
        yield


def closed_by_another_thread(group):
    """Its own thread is told with the next call, whatever that is."""
    for call in (lambda: group.all_reduce(np.ones(2)), lambda: group.batch().__enter__()):
        generator = in_a_batch(group)
        next(generator)
        check("thread that began it" in str(elsewhere(generator.close)), True, "what the other is told")
        del generator
        raises(choir.StateError, call, has="dropped by another")
        sums(group)


def left_open_by_a_thread(group):
    """A new thread is often, for the system, the same one."""
    left = []

    def leave_open():
        left.append(group.batch())
        left[-1].__enter__()

    for _ in range(2):
        elsewhere(leave_open)
    for _ in range(4):
        check(elsewhere(group.all_reduce, np.ones(1)).tolist(), [group.size], "a new thread's sum")
    left.clear()
    sums(group)


class Collector(np.ndarray):
    """An array with whose end the collector looks at everything."""
    ended = 0

    def __del__(self):
        Collector.ended += 1
        gc.collect()


def collected_while_it_ends(group):
    batch, before = group.batch(), Collector.ended
    with batch:
        for _ in range(4):
            group.all_reduce(np.ones(2).view(Collector))
        check(Collector.ended, before, "arrays that ended under the batch")
    check(Collector.ended, before + 4, "arrays that ended with the batch")
    sums(group)


class Reader:
    """A buffer that runs code when it is read."""

    def __init__(self, code):
        self.array, self.code = np.ones(2), code

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **more):
        self.code()
        return self.array.__dlpack__(**more)


def ended_by_a_buffer(group):
    batches = [group.batch()]
    batches[0].__enter__()

    def end():
        batches.pop().__exit__(None, None, None)
        gc.collect()

    raises(choir.StateError, group.all_reduce, Reader(end), has="while a buffer was being read")
    sums(group)


def begun_by_a_buffer(group):
    batch = group.batch()
    reader = Reader(batch.__enter__)
    raises(choir.StateError, group.all_reduce, reader, has="while a buffer was being read")
    batch.__exit__(None, None, None)
    check(reader.array.tolist(), [1, 1], "what was refused")
    sums(group)


if __name__ == "__main__":
    python_tests.main({function: 2 for function in (
        dropped, dropped_in_a_cycle, closed_by_another_thread, left_open_by_a_thread, collected_while_it_ends,
        ended_by_a_buffer, begun_by_a_buffer)})
