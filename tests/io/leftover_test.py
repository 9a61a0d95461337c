#!/usr/bin/env python3
"""leftover_test.py - nothing is left behind after kill -9 of everything.

Several processes hold segments, listeners, abstract sockets, connections and a service thread each
(leftover.c). All are killed at once, without a chance to clean up. After that: no process, no file
in /dev/shm, /tmp or TMPDIR, no abstract socket, no listening port, no shared memory.
"""
# timeout: 60
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

CHILDREN = 3
BUILD = pathlib.Path(os.environ.get("CHOIR_TEST_BUILD", "build"))
PROGRAM = BUILD / "bin" / "tests" / "leftover"
PREFIX = "@choir-"


def files():
    """What lies where programs leave things. Others work here too: only what could be ours counts."""
    found = set()
    for top in ("/dev/shm", "/tmp"):
        for entry in os.scandir(top) if os.path.isdir(top) else ():
            if not entry.is_dir(follow_symlinks=False) and ("choir" in entry.name or "leftover" in entry.name):
                found.add(entry.path)
    return found


def named_files(pid):
    """What a process has open or mapped that has a name in a file system, but program and libraries."""
    links = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")
             if int(fd) > 2]
    links += [line.split(None, 5)[5] for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines()
              if " rw-s " in line]
    return {link for link in links if link.startswith("/") and not link.startswith("/memfd:")}


def unix_names():
    lines = pathlib.Path("/proc/net/unix").read_text().splitlines()[1:]
    return {line.split()[7] for line in lines if len(line.split()) > 7}


def listening_ports():
    ports = set()
    for table in ("tcp", "tcp6"):
        path = pathlib.Path("/proc/net", table)
        for line in path.read_text().splitlines()[1:] if path.exists() else ():
            fields = line.split()
            if fields[3] == "0A":  # TCP_LISTEN
                ports.add((table, int(fields[1].rsplit(":", 1)[1], 16)))
    return ports


def is_alive(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def eventually(gone, what):
    """The kernel takes things down when the last process is really gone: wait for it."""
    for _ in range(500):
        left = gone()
        if not left:
            return
        time.sleep(0.02)
    sys.exit(f"{what} left behind: {left}")


def start(tmpdir):
    """The job, and what each of its processes says it holds."""
    job = subprocess.Popen([PROGRAM, str(CHILDREN)], stdout=subprocess.PIPE, text=True,
                           start_new_session=True, env={**os.environ, "TMPDIR": tmpdir})
    held = []
    for _ in range(CHILDREN + 1):
        words = job.stdout.readline().split()
        if len(words) != 8:
            os.killpg(job.pid, signal.SIGKILL)
            sys.exit("a process of the job did not come up")
        held.append(dict(zip(words[::2], words[1::2])))
    return job, held


def check_seen(pids, names, ports):
    """The test can see what it will look for."""
    if not names <= unix_names() or not all(n.startswith(PREFIX) for n in names):
        return f"abstract sockets are not seen while held: {names - unix_names()}"
    if not ports or not ports <= listening_ports():
        return f"listening ports are not seen while held: {ports - listening_ports()}"
    for pid in pids:
        if "memfd:choir-leftover" not in pathlib.Path(f"/proc/{pid}/maps").read_text():
            return f"the segment is not seen in the maps of process {pid}"
        if named_files(pid):
            return f"process {pid} holds files with a name: {named_files(pid)}"
    return None


def main():
    if not PROGRAM.exists():
        print(f"skip: {PROGRAM} was not built")
        sys.exit(77)
    before = files()
    with tempfile.TemporaryDirectory() as tmpdir:
        job, held = start(tmpdir)
        pids = [int(h["pid"]) for h in held]
        names = {"@" + h["name"] for h in held}
        ports = {("tcp", int(h["tcp4"])) for h in held} | {("tcp6", int(h["tcp6"])) for h in held}
        ports = {p for p in ports if p[1] != 0}
        wrong = check_seen(pids, names, ports)
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
        if wrong:
            sys.exit(wrong)

        eventually(lambda: [p for p in pids if is_alive(p)], "processes")
        eventually(lambda: names & unix_names(), "abstract sockets")
        eventually(lambda: ports & listening_ports(), "listening ports")
        left = files() - before | set(os.listdir(tmpdir))
        if left:
            sys.exit(f"files left behind: {left}")
    print(f"{len(pids)} processes killed; {len(names)} abstract sockets, {len(ports)} ports are gone")


main()
