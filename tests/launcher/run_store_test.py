#!/usr/bin/env python3
"""run_store_test.py - the store that `choir run` serves: where it listens, who may use it, its token."""
# timeout: 120
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from launching import CHOIR, check, family, finish, main, run, start, wait_for

WAIT = "touch ready.$RANK; while ! test -e go; do sleep 0.01; done"


def listeners(pids):
    """Local addresses on which any of these processes listens, as ss tells."""
    table = subprocess.run(["ss", "-ltnpH"], capture_output=True, text=True, check=True).stdout
    return [line.split()[3] for line in table.splitlines()
            if any(f"pid={pid}," in line for pid in pids)]


def test_loopback_only():
    if shutil.which("ss") is None:
        return
    launcher = start("-n", 2, "sh", "-c", WAIT)
    wait_for("ready.*", 2)
    seen = listeners(family())
    check(len(seen) == 2 and all(a.startswith("127.0.0.1:") for a in seen), "not on loopback:", seen)
    pathlib.Path("go").touch()
    check(finish(launcher)[0] == 0)
    launcher = start("-n", 2, "--no-torch-store", "sh", "-c", WAIT.replace("go", "go2").replace("ready", "again"))
    wait_for("again.*", 2)
    check(len(listeners(family())) == 1, "with --no-torch-store:", listeners(family()))
    pathlib.Path("go2").touch()
    check(finish(launcher)[0] == 0)


def test_the_token_is_a_descriptor():
    script = ("import os, re\n"
              "fd = int(os.environ['CHOIR_TOKEN_FD'])\n"
              "token = os.pread(fd, 1000, 0)\n"
              "assert re.fullmatch(rb'[0-9a-f]{64}\\n', token), token\n"
              "assert os.readlink(f'/proc/self/fd/{fd}').startswith('/memfd:'), 'a named file'\n"
              "print(token.decode(), end='')\n")
    done = run("-n", 2, sys.executable, "-c", script)
    tokens = {line.split(b": ")[1] for line in done.stdout.splitlines()}
    check(done.returncode == 0 and len(tokens) == 1, done)
    other = run(sys.executable, "-c", script).stdout
    check(tokens.pop() not in other, "two runs have the same token")


def test_the_token_is_nowhere_else():
    launcher = start("-n", 2, sys.executable, "-c", "import os, time\n"
                     "rank = os.environ['RANK']\n"
                     "with open('token.' + rank, 'w') as out:\n"
                     "    out.write(os.pread(int(os.environ['CHOIR_TOKEN_FD']), 64, 0).decode())\n"
                     "os.rename('token.' + rank, 'ready.' + rank)\n"
                     "while not os.path.exists('go'): time.sleep(0.01)\n")
    wait_for("ready.*", 1)
    token = next(pathlib.Path(".").glob("ready.*")).read_bytes()
    check(len(token) == 64, token)
    for pid in family():
        for what in ("cmdline", "environ"):
            check(token not in pathlib.Path(f"/proc/{pid}/{what}").read_bytes(), what, "of", pid, "has the token")
    pathlib.Path("go").touch()
    check(finish(launcher)[0] == 0)


def test_token_file():
    pathlib.Path("token").write_text("ab" * 32 + "\n")
    os.chmod("token", 0o600)
    read = "import os; print(os.pread(int(os.environ['CHOIR_TOKEN_FD']), 64, 0).decode())"
    check(run("--token-file", "token", sys.executable, "-c", read).stdout == b"0: " + b"ab" * 32 + b"\n")
    os.chmod("token", 0o644)
    done = run("--token-file", "token", "true")
    check(done.returncode == 1 and b"token" in done.stderr, done)
    done = run("--token-file", "missing", "true")
    check(done.returncode == 1 and b"missing" in done.stderr, done)


def test_strangers_are_no_trouble():
    """Somebody on this host without the token: the run goes on, and ends as it should."""
    script = ("import os, socket, re, sys\n"
              "host, port = re.match('tcp://(.*):([0-9]+)', os.environ['CHOIR_STORE']).groups()\n"
              "s = socket.create_connection((host, int(port)))\n"
              "s.sendall(b'GET / HTTP/1.1\\r\\n' * 100)\n"
              "s.settimeout(20)\n"
              "try:\n"
              "    while s.recv(100): pass\n"
              "except ConnectionError: pass\n"
              "print('refused')\n")
    done = run(sys.executable, "-c", script)
    check(done.returncode == 0 and done.stdout == b"0: refused\n", done)


main(globals())
