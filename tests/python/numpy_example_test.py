#!/usr/bin/env python3
"""numpy_example_test.py - kmeans.py of the examples runs as its page says, and notices ranks that go their own ways."""
# timeout: 60
import pathlib
import sys
import tempfile

import python_tests
from python_tests import SOURCE, check, ranks

python_tests.need_choir()

EXAMPLE = SOURCE / "examples" / "07_numpy" / "kmeans.py"


def runs():
    for n in (1, 4):
        said = ranks(n, sys.executable, EXAMPLE)
        check(f"{n} x 20000 points, " in said and "rounds; all ranks have the same centres" in said, True, f"in {said!r}")


def can_fail():
    text = EXAMPLE.read_text()
    check(text.count("group.all_reduce(sums)"), 1, "all-reduces in it")
    with tempfile.TemporaryDirectory() as folder:
        alone = pathlib.Path(folder, "alone.py")
        alone.write_text(text.replace("group.all_reduce(sums)", "pass"))
        said = ranks(2, sys.executable, alone, code=1)
        check("the centres differ between ranks" in said, True, f"in {said!r}")


runs()
can_fail()
