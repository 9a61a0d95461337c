#!/usr/bin/env python3
"""run_signals_test.py - Ctrl-C, SIGTERM and their repetition: ranks are asked to end, then killed."""
# timeout: 120
import os
import pathlib
import pty
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from launching import CHOIR, PATIENCE, check, eventually, finish, main, nothing_is_left, start, state_of, wait_for

POLITE = "trap 'touch asked.$RANK; exit 0' TERM; touch ready.$RANK; while :; do sleep 0.01; done"
STUBBORN = "trap '' TERM INT; touch ready.$RANK; while :; do sleep 0.01; done"


def test_the_first_signal_asks():
    for sig, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGQUIT, 131)):
        for old in pathlib.Path(".").iterdir():
            old.unlink()
        launcher = start("-n", 2, "sh", "-c", POLITE)
        wait_for("ready.*", 2)
        launcher.send_signal(sig)
        rc, _, err = finish(launcher)
        check(rc == code and f"signal {int(sig)} ".encode() in err, sig, rc, err)
        check(len(list(pathlib.Path(".").glob("asked.*"))) == 2, "not asked:", sig, os.listdir())


def test_what_nohup_ignores_stays_ignored():
    for sig in (signal.SIGHUP, signal.SIGINT):
        launcher = start("-n", 2, "sh", "-c", "touch ready.$RANK; while ! test -e go; do sleep 0.01; done",
                         preexec_fn=lambda: signal.signal(sig, signal.SIG_IGN))
        wait_for("ready.*", 2)
        launcher.send_signal(sig)
        pathlib.Path("go").touch()
        rc, _, err = finish(launcher)
        check(rc == 0 and err == b"", sig, rc, err)
        for old in pathlib.Path(".").iterdir():
            old.unlink()


def test_the_second_signal_kills():
    launcher = start("-n", 2, "--grace", 600, "sh", "-c", STUBBORN)
    wait_for("ready.*", 2)
    launcher.send_signal(signal.SIGINT)
    time.sleep(0.1)  # so that they are two
    check(launcher.poll() is None, "ended after the first signal")
    launcher.send_signal(signal.SIGINT)
    rc, _, err = finish(launcher)
    check(rc == 130, rc, err)
    nothing_is_left()


def test_after_the_grace_they_are_killed():
    launcher = start("-n", 2, "--grace", 0.2, "sh", "-c", STUBBORN)
    wait_for("ready.*", 2)
    launcher.send_signal(signal.SIGTERM)
    rc, _, err = finish(launcher)
    check(rc == 143, rc, err)


def test_children_of_ranks_are_asked_too():
    script = "sh -c 'trap \"touch asked; exit\" TERM; touch ready; while :; do sleep 0.01; done' & wait"
    launcher = start("sh", "-c", script)
    wait_for("ready")
    launcher.send_signal(signal.SIGTERM)
    check(finish(launcher)[0] == 143)
    check(pathlib.Path("asked").exists(), "the rank's child was not asked")


def test_a_stopped_rank_ends_as_well():
    launcher = start("sh", "-c", "echo $$ > pid; mv pid ready; exec sleep 600")
    wait_for("ready")
    pid = int(pathlib.Path("ready").read_text())
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: state_of(pid) == "T", "stopped")
    launcher.send_signal(signal.SIGTERM)
    check(finish(launcher)[0] == 143)


def test_output_until_the_end_arrives():
    launcher = start("-n", 2, "sh", "-c", "trap 'seq 1000; exit' TERM; touch ready.$RANK; while :; do sleep 0.01; done")
    wait_for("ready.*", 2)
    launcher.send_signal(signal.SIGTERM)
    rc, out, _ = finish(launcher)
    check(rc == 143 and out.count(b"\n") == 2000, rc, out.count(b"\n"))


def test_ctrl_c_on_a_terminal():
    """Only the launcher is in the terminal's foreground group; ranks hear of it from the launcher."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(CHOIR, [CHOIR, "run", "-n", "2", "sh", "-c", POLITE])
    wait_for("ready.*", 2)
    os.write(terminal, b"\x03")
    shown = b""
    while True:
        try:
            shown += os.read(terminal, 4096)
        except OSError:
            break
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    check(os.waitstatus_to_exitcode(status) == 130 and b"signal 2 " in shown, status, shown)
    check(len(list(pathlib.Path(".").glob("asked.*"))) == 2, os.listdir())


def test_signals_work_while_nobody_reads():
    """The pipe is full and stays so: the launcher must not be stuck in a write."""
    read, write = os.pipe()
    launcher = start("-n", 2, "--grace", 0.2, "yes", stdout=write, stderr=subprocess.DEVNULL)
    os.close(write)
    eventually(lambda: pathlib.Path(f"/proc/{launcher.pid}/stat").exists(), "started")
    time.sleep(0.3)  # until it is full; if it is not yet, the test proves less
    launcher.send_signal(signal.SIGTERM)
    rc = launcher.wait(PATIENCE)
    os.close(read)
    check(rc == 143, rc)


def test_timeout_works_while_nobody_reads():
    read, write = os.pipe()
    launcher = start("-n", 2, "--timeout", 0.3, "--grace", 0.2, "yes", stdout=write, stderr=subprocess.DEVNULL)
    os.close(write)
    check(launcher.wait(PATIENCE) == 124, launcher.returncode)
    os.close(read)


main(globals())
