#!/usr/bin/env python3
"""run_terminal_test.py - on a terminal: colour, folded lines, questions without a line's end, input."""
# timeout: 120
import os
import pathlib
import pty
import re
import select
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from launching import CHOIR, PATIENCE, check, eventually, is_alive, main, run, wait_for


class Terminal:
    """`choir run` on a pseudo-terminal."""

    def __init__(self, *args, env=None, before=lambda: None):
        self.shown = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                before()
                os.execve(CHOIR, [CHOIR, "run", *map(str, args)], {**os.environ, "TERM": "xterm", **(env or {})})
            finally:
                os._exit(99)

    def read(self, seconds=0.0):
        if not select.select([self.fd], [], [], seconds)[0]:
            return False
        try:
            chunk = os.read(self.fd, 65536)
        except OSError:
            return False
        self.shown += chunk
        return bool(chunk)

    def until(self, text):
        """Wait for it to be shown."""
        until = time.monotonic() + PATIENCE
        while text not in self.shown and time.monotonic() < until:
            self.read(0.1)
        check(text in self.shown, text, "is not shown:", self.shown)

    def type(self, text):
        os.write(self.fd, text)

    def end(self):
        """Its exit code; all it has shown is in .shown."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if not self.read(0.1) and os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                break
        else:
            check(False, "it does not end:", self.shown)
            os.kill(self.pid, signal.SIGKILL)
        while self.read():
            pass
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def show(*args, **options):
    terminal = Terminal(*args, **options)
    code = terminal.end()
    return code, terminal.shown.replace(b"\r\n", b"\n")


def test_colour():
    code, shown = show("-n", 2, "sh", "-c", "echo rank $RANK")
    check(code == 0 and b"\033[36m0:\033[0m rank 0\n" in shown and b"\033[32m1:\033[0m rank 1\n" in shown, shown)
    for env in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        _, shown = show("-n", 2, "sh", "-c", "echo rank $RANK", env=env)
        check(b"\033" not in shown and b"0: rank 0\n" in shown, env, shown)
    check(b"\033" in show("echo", env={"NO_COLOR": ""})[1], "an empty NO_COLOR counts as none")
    check(b"\033" not in show("--color", "never", "echo")[1])
    check(b"\033" in run("--color", "always", "echo").stdout, "always")
    check(b"\033" not in run("echo").stdout, "not a terminal")


def test_folded_by_itself():
    """Ranks print when they see a file, at the same time; a busy machine may spread them, so try again."""
    for _ in range(20):
        _, shown = show("-n", 4, "--color", "never", "echo", "ready")
        if shown == b"0-3: ready\n":
            break
        check(sorted(re.findall(rb": (\w+)\n", shown)) != [], shown)
    else:
        check(False, "never folded", shown)
    _, shown = show("-n", 4, "--no-fold", "--color", "never", "echo", "ready")
    check(sorted(shown.splitlines()) == [b"%d: ready" % i for i in range(4)], shown)


def test_a_question_is_shown_and_answered():
    terminal = Terminal("-n", 2, "--color", "never", "sh", "-c",
                        "test $RANK = 1 && exit; printf 'name? '; read name; echo hello $name")
    terminal.until(b"0: name? ")
    terminal.type(b"you\n")
    check(terminal.end() == 0 and b"0: name? you\r\nhello you\r\n" in terminal.shown, terminal.shown)


def test_another_rank_breaks_an_open_line():
    terminal = Terminal("-n", 2, "--no-fold", "--color", "never", "sh", "-c",
                        "if test $RANK = 0; then printf begin; touch shown; while ! test -e go; do sleep 0.01; done; echo end;"
                        "else while ! test -e said; do sleep 0.01; done; echo other; touch go; fi")
    terminal.until(b"0: begin")
    pathlib.Path("said").touch()
    check(terminal.end() == 0, terminal.shown)
    check(b"0: begin\r\n1: other\r\n0: end\r\n" in terminal.shown, terminal.shown)


def test_in_the_background_the_terminal_is_not_read():
    """Another group is in the terminal's foreground: what is typed is not for us."""
    def background():
        if os.fork() != 0:  # the session's leader stays in the foreground
            _, status = os.wait()
            os._exit(os.waitstatus_to_exitcode(status))
        os.setpgid(0, 0)
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    code, shown = show("--color", "never", "sh", "-c", "cat; echo read nothing", before=background)
    check(code == 0 and b"0: read nothing\n" in shown, code, shown)


def test_the_terminal_hangs_up():
    terminal = Terminal("-n", 2, "sh", "-c", "trap '' HUP; echo $$ > pid.$RANK; mv pid.$RANK ready.$RANK; sleep 600")
    wait_for("ready.*", 2)
    ranks = [int(p.read_text()) for p in pathlib.Path(".").glob("ready.*")]
    os.close(terminal.fd)
    code = os.waitstatus_to_exitcode(os.waitpid(terminal.pid, 0)[1])
    check(code in (129, 141), code)
    eventually(lambda: not any(map(is_alive, ranks)), "ranks end")


main(globals())
