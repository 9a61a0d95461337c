#!/usr/bin/env python3
"""refuse_test.py - who is missing, who came twice, who was told something else: all are told, in time."""
# timeout: 60
import os
import tempfile
import time

from members import *


def missing_rank():
    port = free_port()
    late = start("--timeout", 600000, env=torch_variables(2, 4, port))
    first = start("--timeout", 2000, env=torch_variables(0, 4, port))
    began = time.monotonic()
    for process in (first, late):
        text = refused(process)
        check("CHOIR_ERR_TIMEOUT" in text and "2 of 4 ranks have joined, missing: 1, 3" in text, text)
        check("rank 0 (host" in text and "rank 2 (host" in text, text)
    check(time.monotonic() - began < 12, "the error came too late")


def no_store():
    """Rank 0, which is to serve, never comes."""
    port = free_port()
    began = time.monotonic()
    text = refused(start("--timeout", 700, env=torch_variables(1, 2, port)))
    check(f"127.0.0.1:{port}" in text and "rank 1 of 2" in text and "torchrun" in text, text)
    check(time.monotonic() - began < 10, "the error came too late")


def duplicate_rank():
    port = free_port()
    ranks = [start("--timeout", 20000, env=torch_variables(r, 3, port)) for r in (0, 1, 1)]
    for process in ranks:
        text = refused(process)
        check("two processes claim the same rank: rank 1 (host" in text, text)
        check(all(f"process {p.pid})" in text for p in ranks[1:]), text)


def different_sizes():
    port = free_port()
    ranks = [start("--timeout", 20000, env=torch_variables(r, n, port)) for r, n in ((0, 3), (1, 4))]
    for process in ranks:
        text = refused(process)
        check("world sizes differ" in text and "told 3" in text and "told 4" in text, text)


def wrong_token():
    port = free_port()
    paths = [os.path.join(tempfile.mkdtemp(), "token") for _ in range(2)]
    for i, path in enumerate(paths):
        with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
            file.write(str(i) * 64)
    zero = start("--timeout", 3000, "--token-file", paths[0], env=torch_variables(0, 2, port))
    other = start("--timeout", 3000, "--token-file", paths[1], env=torch_variables(1, 2, port))
    none = start("--timeout", 3000, env=torch_variables(1, 2, port))
    for process in (other, none):
        text = refused(process)
        check("CHOIR_ERR_PERMISSION" in text and "token" in text, text)
    check("missing: 1" in refused(zero), "rank 0 did not name the missing one")


def open_to_others():
    """Without a token nobody serves beyond loopback."""
    text = refused(start("--url", f"tcp://0.0.0.0:{free_port()}", "--rank", 0, "--size", 2, "--timeout", 2000))
    check("token" in text and "loopback" in text, text)


def taken_port():
    port = free_port()
    first = start("--timeout", 3000, env=torch_variables(0, 2, port))
    second = start("--timeout", 3000, env=torch_variables(0, 2, port))
    texts = [refused(p) for p in (first, second)]
    check(any(f"127.0.0.1:{port}" in t and "ddress already in use" in t for t in texts), texts)


missing_rank()
no_store()
duplicate_rank()
different_sizes()
wrong_token()
open_to_others()
taken_port()
