#!/usr/bin/env python3
"""python_docs_test.py - the programs in docs/python.md run as they are and print what stands below them."""
# timeout: 60
import contextlib
import io
import re
import sys

import python_tests
from python_tests import SOURCE, check

python_tests.need_choir()

PAGE = SOURCE / "docs" / "python.md"
BLOCK = re.compile(r"^```(python|output)\n(.*?)^```", re.M | re.S)


def programs():
    """(line, program, what it prints on rank 0)"""
    text = PAGE.read_text()
    found = [(text[:m.start()].count("\n") + 2, *m.groups()) for m in BLOCK.finditer(text)]
    for (line, kind, code), (_, kind_behind, printed) in zip(found[::2], found[1::2], strict=True):
        check((kind, kind_behind), ("python", "output"), f"{PAGE.name}:{line}")
        yield line, code, printed


def run_all(rank):
    for line, code, printed in programs():
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile("\n" * (line - 1) + code, str(PAGE), "exec"), {"__name__": "__main__"})  # pylint: disable=exec-used
        if rank == 0:
            check(out.getvalue(), printed, f"{PAGE.name}:{line}: output")


def documented():
    """Everything public has a docstring, and the page or its table names every method."""
    import choir
    page = PAGE.read_text()
    for name in choir.__all__:
        check(bool(getattr(choir, name).__doc__), True, f"the docstring of {name}")
    for kind in (choir.Group, choir.Work, choir.Store):
        for name in dir(kind):
            if not name.startswith("_"):
                check(bool(getattr(kind, name).__doc__), True, f"the docstring of {kind.__name__}.{name}")
    for name in dir(choir.Group):
        if name.endswith(("reduce", "gather", "scatter", "_to_all", "cast", "send", "recv", "_object", "coalesced", "sparse")):
            check(name in page, True, f"{PAGE.name} names {name}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        import os
        run_all(int(os.environ["RANK"]))
    else:
        documented()
        python_tests.ranks(2, sys.executable, __file__, "rank")
