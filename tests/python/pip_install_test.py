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


# --- choir.torch, of what was installed ------------------------------------------------------------

TORCH = """
import importlib.metadata, torch, torch.distributed as dist
names = [e.value for e in importlib.metadata.entry_points(group="torch.backends") if e.name == "choir"]
assert names == ["choir_autoload:register"], names
dist.init_process_group("choir")  # torch has found it by itself
t = torch.ones(3)
dist.all_reduce(t)
from choir.torch import backend_build
for path in (backend_build._library(), backend_build._headers(), backend_build.SOURCE):
    assert "/fresh/" in str(path) and path.exists(), path
print(t.tolist())
dist.destroy_process_group()
"""


def compiles_for_torch():
    """With the headers, the sources and the library of the wheel, and a cache of its own."""
    found = subprocess.run([sys.executable, "-c", "import torch; print(torch.__path__[0])"], capture_output=True, text=True,
                           check=False)
    if found.returncode != 0:
        print("PyTorch is not installed")
        return
    packages = subprocess.check_output(["fresh/bin/python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
                                       text=True).strip()
    with open(f"{packages}/torch_of_another.pth", "w", encoding="utf-8") as f:
        f.write(os.path.dirname(found.stdout.strip()) + "\n")
    said = run("choir", "run", "-n", "2", "python", "-c", TORCH, env={**fresh, "CHOIR_CACHE_DIR": os.path.abspath("cache")},
               cwd="fresh", seconds=200)
    check(said.count("[2.0, 2.0, 2.0]"), 2, f"sums in {said}")
    check(said.count("compiling the part"), 1, f"compilations in {said}")


if os.environ.get("CHOIR_TEST_LONG"):
    compiles_for_torch()
