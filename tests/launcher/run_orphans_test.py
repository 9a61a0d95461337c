#!/usr/bin/env python3
"""run_orphans_test.py - nothing is left of a run, whoever is killed: launcher, keeper, ranks, all of them."""
# timeout: 120
import os
import pathlib
import signal
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from launching import (check, eventually, family, finish, is_alive, keeper_of, main, nothing_is_left, read_pids, run,
                       start, wait_for)

# A rank with a child in its group, one in a session of its own, and a daemon that has lost its parent.
PARENT = """
trap '' HUP TERM
sleep 600 &
setsid sleep 600 &
(setsid sh -c 'trap "" HUP TERM; touch ready.$RANK; sleep 600; sleep 600' &)
while :; do wait; done
"""


def parents(*args):
    launcher = start("-n", 2, *args, "sh", "-c", PARENT)
    wait_for("ready.*", 2)
    eventually(lambda: sum(line.startswith("sleep 600") for line in family().values()) == 6, "three sleep for each rank")
    return launcher


def test_launcher_killed():
    launcher = parents()
    launcher.kill()
    launcher.communicate()
    nothing_is_left()


def test_keeper_killed():
    launcher = parents()
    os.kill(keeper_of(launcher), signal.SIGKILL)
    rc, _, err = finish(launcher)
    check(rc == 1 and b"keeps the ranks" in err, rc, err)
    nothing_is_left()


def test_launcher_killed_while_it_starts_ranks():
    for ranks in (0, 3, 30):
        for old in pathlib.Path(".").iterdir():
            old.unlink()
        launcher = start("-n", 60, "sh", "-c", "touch ready.$RANK; (setsid sleep 600 &) ; sleep 600")
        wait_for("ready.*", ranks)
        launcher.kill()
        launcher.communicate()
        nothing_is_left()


def test_killed_by_name_or_command_line():
    """pkill -f would find launcher and keeper if the keeper kept the launcher's command line."""
    launcher = parents()
    keeper = keeper_of(launcher)
    line = pathlib.Path(f"/proc/{keeper}/cmdline").read_bytes().replace(b"\0", b" ")
    check(line.strip() == b"rank-keeper", line)
    check(pathlib.Path(f"/proc/{keeper}/comm").read_text() == "rank-keeper\n")
    check(os.getsid(keeper) != os.getsid(launcher.pid), "one session")
    launcher.kill()
    launcher.communicate()
    nothing_is_left()


def test_rank_killed():
    launcher = parents("--grace", 0.2)
    rank = next(pid for pid, line in family().items() if line.startswith("sh -c") and "while" in line)
    os.kill(rank, signal.SIGKILL)
    rc, _, err = finish(launcher)
    check(rc == 137, rc, err)
    nothing_is_left()


def sockets_of(pids):
    """Inodes of all sockets these processes hold."""
    found = set()
    for pid in pids:
        for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            link = os.readlink(fd)
            if link.startswith("socket:["):
                found.add(link[8:-1])
    return found


def names(inodes):
    """What of them has a name: listening ports, named Unix sockets."""
    found = set()
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                found.add((table, fields[1]))
    for line in pathlib.Path("/proc/net/unix").read_text().splitlines()[1:]:
        fields = line.split()
        if len(fields) > 7 and fields[6] in inodes:
            found.add(("unix", fields[7]))
    return found


def listening():
    """All listening ports of the host, and names of Unix sockets."""
    every = {line.split()[9] for t in ("tcp", "tcp6") for line in pathlib.Path(f"/proc/net/{t}").read_text().splitlines()[1:]}
    every |= {line.split()[6] for line in pathlib.Path("/proc/net/unix").read_text().splitlines()[1:]}
    return names(every)


def named_files(pids):
    """Files with a name that these processes have open for writing or have mapped shared."""
    found = set()
    for pid in pids:
        for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            link = os.readlink(fd)
            if link.startswith("/") and not link.startswith(("/dev/null", "/memfd:", "/proc/", "/dev/pts")):
                found.add(link)
        for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
            if " rw-s " in line and not line.split(None, 5)[5].startswith("/memfd:"):
                found.add(line.split(None, 5)[5])
    return found


def test_all_killed():
    launcher = parents()
    everybody = family()
    named = names(sockets_of(everybody))
    check(len(named) == 2 and all(kind == "tcp" and where.startswith("0100007F:") for kind, where in named),
          "not the two stores on loopback alone:", named)
    check(not named_files(everybody), named_files(everybody))
    for how in (signal.SIGSTOP, signal.SIGKILL):  # a shell whose child dies before it would start the next one
        for pid in everybody:
            os.kill(pid, how)
    launcher.communicate()
    nothing_is_left()
    eventually(lambda: not named & listening(), f"{named} are gone")


def test_what_ranks_leave_is_ended():
    """The run ended well, but a daemon stayed; it holds the output open, too."""
    done = run("-n", 2, "--verbose", "sh", "-c", "(setsid sh -c 'echo $$ > pid.$RANK; exec sleep 600' &); "
               "while ! test -s pid.$RANK; do sleep 0.01; done")
    check(done.returncode == 0 and b"ranks had left were ended" in done.stderr, done)
    for pid in read_pids():
        check(not is_alive(pid), pid, "lives")
    # And one that ignores the request.
    done = run("sh", "-c", "(setsid sh -c 'trap \"\" TERM; echo $$ > pid.0; sleep 600; sleep 600' &); "
               "while ! test -s pid.0; do sleep 0.01; done")
    check(done.returncode == 0 and not is_alive(read_pids("pid.0")[0]), done)


def test_a_run_inside_a_run():
    from launching import CHOIR
    launcher = start("-n", 2, CHOIR, "run", "-n", 2, "sh", "-c", "touch ready.$PPID.$RANK; sleep 600")
    wait_for("ready.*", 4)
    launcher.kill()
    launcher.communicate()
    nothing_is_left()


def test_a_foreign_holder_of_the_output_does_not_hold_the_run_up():
    """Somebody who is no descendant has the rank's standard output: the run ends without its consent."""
    holder = subprocess.Popen(["sleep", "600"], stdin=subprocess.PIPE)
    launcher = start("sh", "-c", "echo $$ > pid.0; mv pid.0 ready; sleep 600", stdin=subprocess.PIPE)
    wait_for("ready")
    rank = int(pathlib.Path("ready").read_text())
    held = os.open(f"/proc/{rank}/fd/1", os.O_WRONLY)
    os.kill(rank, signal.SIGTERM)
    rc, _, err = finish(launcher)
    os.close(held)
    holder.kill()
    holder.wait()
    holder.stdin.close()
    check(rc == 143, rc, err)


main(globals())
