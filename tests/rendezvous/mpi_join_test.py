#!/usr/bin/env python3
"""mpi_join_test.py - choir_init() under mpirun and mpiexec: rank 0's token goes through their key-value space."""
# timeout: 60
import json
import os
import pathlib
import shlex
import shutil
import subprocess

from members import *

LAUNCHERS = {
    "mpirun.openmpi": (["--oversubscribe"] + (["--allow-run-as-root"] if os.geteuid() == 0 else []), "(pmix)"),
    "mpiexec.hydra": ([], "(pmi1)"),
}


def join(launcher, options, through, size):
    # A file for each: what launchers forward they may mix within a line.
    member = f"exec {shlex.quote(str(MEMBER))} --again --timeout 20000 >found.$$"
    command = [launcher, *options, "-n", str(size), "sh", "-c", member]
    done = subprocess.run(command, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=50)
    check(done.returncode == 0, f"{command}: exit code {done.returncode}: {done.stderr}")
    infos = []
    for path in pathlib.Path(".").glob("found.*"):
        infos += [json.loads(line) for line in path.read_text().splitlines()]
        path.unlink()
    check_whole(infos, size)
    check(size == 1 or all(through in info["origin"] for info in infos), [info["origin"] for info in infos])


missing = [name for name in LAUNCHERS if shutil.which(name) is None]
for name, (options, through) in LAUNCHERS.items():
    for size in (1, 2, 4) if name not in missing else ():
        join(name, options, through, size)
if missing:
    print(f"skip: {' and '.join(missing)} not installed")
    sys.exit(77)
