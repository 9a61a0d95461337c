#!/usr/bin/env python3
"""pip_install_test.py - `pip install .` into a fresh virtual environment, then four ranks under its own command."""
# timeout: 600
import os
import subprocess
import sys

import python_tests
from python_tests import SOURCE, check, run, skip

PROGRAM = "import choir, numpy as np; g = choir.init(); a = np.ones(3, 'f4'); g.all_reduce(a); print(a)"

python_tests.need_choir()
run(sys.executable, "-m", "venv", "fresh")
# A copy, so that nothing is written into the tree.
for name in ("CMakeLists.txt", "LICENSE", "README.md", "cmake", "examples", "include", "man", "pyproject.toml", "python",
             "src", "tools"):
    run("cp", "-r", SOURCE / name, ".")
pip = subprocess.run(["fresh/bin/pip", "install", "--quiet", "--disable-pip-version-check", ".", "numpy"],
                     capture_output=True, text=True, check=False)
if pip.returncode != 0 and ("ConnectionError" in pip.stderr or "No matching distribution" in pip.stderr):
    skip("pip cannot fetch scikit-build-core: " + pip.stderr.strip().splitlines()[-1])
check(pip.returncode, 0, f"pip install: {pip.stdout}{pip.stderr}")

fresh = {**os.environ, "PATH": os.path.abspath("fresh/bin") + ":" + os.environ["PATH"]}
del fresh["PYTHONPATH"]
printed = run("choir", "run", "-n", "4", "python", "-c", PROGRAM, env=fresh, cwd="fresh")
check(sorted(printed.splitlines()), [f"{r}: [4. 4. 4.]" for r in range(4)])
