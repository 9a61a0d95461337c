#!/usr/bin/env python3
"""flight_dump_test.py - both forms of a flight record, as Python's own json and pickle modules read them."""
import json
import os
import pathlib
import pickle
import re
import subprocess
import sys

BUILD = pathlib.Path(os.environ["CHOIR_TEST_BUILD"])
failures = []


def check(condition, *told):
    if not condition:
        failures.append(" ".join(map(str, told)))


def load(scenario, rank):
    folder = pathlib.Path(scenario)
    folder.mkdir(exist_ok=True)
    subprocess.run([BUILD / "bin/tests/flight_dumps", scenario, folder], check=True)
    return (json.loads((folder / f"rank_{rank}.json").read_text()),
            pickle.loads((folder / f"pickle_{rank}").read_bytes()))


ENTRY = {"record_id": int, "pg_id": int, "thread_id": int, "thread_name": str, "collective_seq_id": int,
         "p2p_seq_id": int, "op_id": int, "profiling_name": str, "time_created_ns": int, "input_sizes": list,
         "input_dtypes": list, "output_sizes": list, "output_dtypes": list, "state": str, "retired": bool,
         "timeout_ms": int, "is_p2p": bool}

as_json, as_pickle = load("everything", 2)
for document, library in ((as_json, "choir:"), (as_pickle, "gloo:")):
    check(document["version"] == "2.10", document["version"])
    check(document["comm_lib_version"].startswith("choir "), document["comm_lib_version"])
    check(document["pg_config"] == {"world": {"name": "world", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"},
                                    "half": {"name": "half", "desc": "two by two", "ranks": "[2, 3]"}}, document["pg_config"])
    number = str if document is as_json else int
    check(document["pg_status"] == {str(g["pg_id"]): {f"last_{what}_collective": number(g["last_collective"])
                                                      for what in ("enqueued", "started", "completed")}
                                    for g in document["choir"]["groups"]}, document["pg_status"])
    check(document["choir"]["ranks"] == [2] and document["choir"]["why"] == "a test", document["choir"])
    check([e["record_id"] for e in document["entries"]] == list(range(22)), "not in order")
    for entry in document["entries"]:
        for key, kind in ENTRY.items():
            check(type(entry[key]) is kind, key, entry[key])
        check(entry["profiling_name"].startswith(library), entry["profiling_name"])
        check(entry["state"] == "completed" and entry["retired"], entry)
        check(abs(entry["duration_ms"] - 995e-6) < 1e-9, entry["duration_ms"])
        check(entry["time_created_ns"] <= entry["time_discovered_started_ns"] <= entry["time_discovered_completed_ns"], entry)
check(all(type(e["process_group"]) is tuple and e["frames"] == [] for e in as_pickle["entries"]), "pickle: tuples, frames")
check(all(type(e["process_group"]) is list and "frames" not in e for e in as_json["entries"]), "JSON: lists, no frames")

# Every key is on the page that describes the document, and the page has no other.
page = (pathlib.Path(os.environ["CHOIR_TEST_SOURCE"]) / "man/man7/choir_trace.7").read_text()
page = page[page.index(".SS The document"):page.index(".SS Example")]
keys = set(as_json) | set(as_json["choir"]) | set(as_json["choir"]["groups"][0])
entries = [e for scenario in ("everything", "failed", "unsent") for form in load(scenario, 1) for e in form["entries"]]
for inner in (*as_json["pg_config"].values(), *as_json["pg_status"].values(), *entries):
    keys |= set(inner)
told = set(re.findall(r"\b[a-z][a-z0-9_]+\b", " ".join(re.findall(r"^\.(?:B|BR|RB) (.*)", page, re.M)))) - {"choir_work_sequence"}
check(keys <= told, "not on the page:", keys - told)
check(told <= keys, "on the page only:", told - keys)

# The two say the same, but for what is told differently.
for a, b in zip(as_json["entries"], as_pickle["entries"]):
    for key in set(a) - {"profiling_name", "process_group", "duration_ms"}:
        same = abs(a[key] - b[key]) < 10**9 if key.startswith("time_") else a[key] == b[key]
        check(same, key, a[key], b[key])

# What is not known yet.
as_json, as_pickle = load("skipped", 0)
last = as_json["entries"][-1], as_pickle["entries"][-1]
check([e["time_discovered_completed_ns"] for e in last] == [0, None], last)
check(all(e["state"] == "started" and not e["retired"] and "duration_ms" not in e for e in last), last)

# A long list of its ranks is whole, and names are what they were, whatever they were.
as_json, as_pickle = load("names", 0)
names = ['"quoted"\n\\', "gr\u00fc\u00df \u266b \U0001f3b5", "a?b", ""]
check(list(as_json["pg_config"]) == names and list(as_pickle["pg_config"]) == names, list(as_json["pg_config"]))

print("\n".join(failures))
sys.exit(1 if failures else 0)
