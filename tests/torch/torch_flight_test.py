#!/usr/bin/env python3
"""torch_flight_test.py - PyTorch's own analyser of flight records reads ours and comes to the right verdict."""
# timeout: 120
import os
import pathlib
import pickle
import subprocess
import sys

import torch_tests

torch_tests.need_torch()
failures = []


def check(condition, *told):
    if not condition:
        failures.append(" ".join(map(str, told)))


def make_up(scenario):
    """The records of a job that never was."""
    folder = pathlib.Path(scenario)
    folder.mkdir()
    subprocess.run([torch_tests.BUILD / "bin/tests/flight_dumps", scenario, folder], check=True)
    for path in folder.glob("*.json"):
        path.unlink()
    return folder


def run_job(name, *more):
    """Those of a real one, in which rank 2 leaves all-reduce number 7 out."""
    folder = pathlib.Path(name)
    folder.mkdir()
    done = subprocess.run([torch_tests.BUILD / "bin/choir", "run", "-n", "4", "--env",
                           f"TORCH_FR_DUMP_TEMP_FILE={folder.resolve()}/pickle_", torch_tests.BUILD / "bin/tests/singer",
                           "skip", "7", "500", *more], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    check(sorted(p.name for p in folder.iterdir()) == [f"pickle_{r}" for r in range(4)], name, list(folder.iterdir()), done)
    return folder


def analyse(folder):
    """What it prints, and its database."""
    from torch.distributed.flight_recorder import fr_trace
    import contextlib
    import io

    said = io.StringIO()
    import logging
    handler = logging.StreamHandler(said)
    for name in list(logging.root.manager.loggerDict) + [""]:
        logging.getLogger(name).addHandler(handler)
    with contextlib.redirect_stdout(said):
        fr_trace.main([str(folder), "-p", "pickle_", "-o", "db"])
    for name in list(logging.root.manager.loggerDict) + [""]:
        logging.getLogger(name).removeHandler(handler)
    types, db = pickle.load(open("db", "rb"))
    return said.getvalue(), db


said, db = analyse(make_up("everything"))
check("mismatch" not in said.lower() and "not all ranks" not in said.lower(), said)
check(len(db.collectives) == 16 + 3 + 2 * 3, "collectives matched:", len(db.collectives), said)
check(all(c.pass_check for c in db.collectives), [c for c in db.collectives if not c.pass_check])
check({(g.desc, g.size) for g in db.groups} == {("default_pg", 4), ("two by two", 2)}, db.groups)

said, db = analyse(make_up("skipped"))
check("Not all ranks joining collective" in said and "missing ranks: {2}" in said, said)
said, db = analyse(make_up("size"))
check("SIZE_OR_SYNTAX_MISMATCH" in said, said)
said, db = analyse(make_up("type"))
check("COLLECTIVE_DTYPE_MISMATCH" in said, said)
said, db = analyse(make_up("operation"))
check("COLLECTIVE_TYPE_MISMATCH" in said, said)
said, db = analyse(make_up("transfer-size"))  # ours never stops it
check(len(db.collectives) >= 16, len(db.collectives))

said, db = analyse(run_job("early"))  # where the others are in the last all-reduce, rank 2 is in the barrier after it
check("Culprit rank 2; Error type: COLLECTIVE_TYPE_MISMATCH" in said, said)
said, db = analyse(run_job("differs", "grow"))
check("Culprit rank 2; Error type: SIZE_OR_SYNTAX_MISMATCH" in said, said)

print("\n".join(failures))
sys.exit(1 if failures else 0)
