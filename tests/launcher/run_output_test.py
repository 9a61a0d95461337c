#!/usr/bin/env python3
"""run_output_test.py - what ranks print comes out whole: many lines, long lines, any bytes, slow readers."""
# timeout: 120
import hashlib
import os
import pathlib
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from launching import CHOIR, PATIENCE, check, eventually, finish, lines, main, run, start, state_of, wait_for

PYTHON = sys.executable


def split(output):
    """{rank: its bytes}"""
    seen = {}
    for line in output.split(b"\n")[:-1]:
        rank, _, rest = line.partition(b": ")
        seen[int(rank)] = seen.get(int(rank), b"") + rest + b"\n"
    return seen


def test_many_lines():
    done = run("-n", 4, "seq", 100000)
    expected = b"".join(b"%d\n" % i for i in range(1, 100001))
    seen = split(done.stdout)
    check(done.returncode == 0 and sorted(seen) == [0, 1, 2, 3], done.returncode, sorted(seen))
    for rank, got in seen.items():
        check(got == expected, "rank", rank, "lost or changed lines:", len(got), "bytes of", len(expected))


def test_both_streams_keep_apart():
    done = run("-n", 2, "sh", "-c", "seq 1000; seq 2000 >&2; exit 0")
    check(done.stdout.count(b"\n") == 2000 and done.stderr.count(b"\n") == 4000, done.stdout[:80], done.stderr[:80])


def test_any_bytes():
    pathlib.Path("bytes").write_bytes(bytes(range(256)) * 300 + b"\xff\xfe\n\0\n\xc3(" + os.urandom(100000) + b"\n")
    whole = pathlib.Path("bytes").read_bytes()
    done = run("-n", 3, "cat", "bytes")
    for rank, got in split(done.stdout).items():
        check(got == whole, "rank", rank, len(got), len(whole))
    check(len(split(done.stdout)) == 3)
    check(run("--no-prefix", "cat", "bytes").stdout == whole, "without a prefix")


def test_long_lines():
    """Longer than the pipe, than a read, than what is kept of a line; several at once."""
    for size in (70000, 1024 * 1024 + 1, 5000000):
        done = run("-n", 3, PYTHON, "-c", f"import os; print(os.environ['RANK'] * {size}); print('end')")
        seen = split(done.stdout)
        for rank in range(3):
            check(seen.get(rank) == str(rank).encode() * size + b"\nend\n", "rank", rank, "size", size,
                  {r: len(g) for r, g in seen.items()})


def test_two_lines_that_become_long_in_the_same_look():
    """Both ranks have printed all that is kept of a line; the launcher finds one byte more of each at once."""
    script = ("import array, fcntl, os, termios, time\n"
              "rank = os.environ['RANK']\n"
              "def put(what):\n"
              "    for at in range(0, len(what), 4096): os.write(1, what[at:at + 4096])\n"
              "def wait(condition):\n"
              "    while not condition(): time.sleep(0.005)\n"
              "def taken():\n"
              "    left = array.array('i', [0]); fcntl.ioctl(1, termios.FIONREAD, left); return left[0] == 0\n"
              "put(rank.encode() * (1 << 20)); wait(taken); open('kept.' + rank, 'w').close()\n"
              "wait(lambda: os.path.exists('stopped')); put(b'x'); open('more.' + rank, 'w').close()\n"
              "if rank == '0': wait(taken)\n"
              "put(b'y\\n')\n")
    launcher = start("-n", 2, PYTHON, "-c", script)
    wait_for("kept.*", 2)
    launcher.send_signal(signal.SIGSTOP)
    eventually(lambda: state_of(launcher.pid) == "T", "the launcher stands still")
    pathlib.Path("stopped").touch()
    wait_for("more.*", 2)
    launcher.send_signal(signal.SIGCONT)
    code, out, err = finish(launcher)
    seen = split(out)
    for rank in range(2):
        check(seen.get(rank) == str(rank).encode() * (1 << 20) + b"xy\n", "rank", rank, code, err,
              {r: (len(g), g.count(b"\n")) for r, g in seen.items()})


def test_a_last_line_without_an_end():
    check(split(run("-n", 2, "printf", "a\\nb").stdout) == {0: b"a\nb\n", 1: b"a\nb\n"})
    check(run("--no-prefix", "printf", "a\\nb").stdout == b"a\nb")
    check(run("-n", 2, "--no-prefix", "printf", "ab").stdout == b"ab\nab")
    check(run("-n", 2, "true").stdout == b"")
    check(sorted(lines(run("-n", 2, "echo").stdout)) == ["0: ", "1: "])


def test_a_long_line_that_waits_for_another_rank_is_no_deadlock():
    """Rank 0 writes half a long line and waits for a file that rank 1 makes after much output."""
    script = ("import os, sys, time\n"
              "if os.environ['RANK'] == '0':\n"
              "    sys.stdout.write('x' * 3000000); sys.stdout.flush()\n"
              "    open('half', 'w').close()\n"
              "    while not os.path.exists('done'): time.sleep(0.01)\n"
              "    print('y')\n"
              "else:\n"
              "    while not os.path.exists('half'): time.sleep(0.01)\n"
              "    for i in range(100000): print('some line')\n"
              "    sys.stdout.flush(); open('done', 'w').close()\n")
    done = run("-n", 2, PYTHON, "-c", script)
    seen = split(done.stdout)
    check(done.returncode == 0 and seen[1] == b"some line\n" * 100000, done.returncode, len(seen.get(1, b"")))
    check(seen[0].replace(b"\n", b"") == b"x" * 3000000 + b"y", "rank 0's line")


def test_a_slow_reader_gets_all():
    launcher = start("-n", 2, "seq", 200000)
    time.sleep(0.3)
    got = hashlib.sha256()
    count = 0
    while chunk := launcher.stdout.read(200000):
        time.sleep(0.01)
        got.update(chunk)
        count += chunk.count(b"\n")
    launcher.stderr.close()
    check(launcher.wait(PATIENCE) == 0 and count == 400000, count)


def test_a_slow_reader_gets_something_of_every_rank():
    """Ranks that print without an end share what the reader takes."""
    launcher = start("-n", 3, "yes", "x" * 99)
    seen, read = {}, 0
    while read < 6000000:
        chunk = os.read(launcher.stdout.fileno(), 65536)
        read += len(chunk)
        for line in chunk.split(b"\n"):
            seen[line[:3]] = seen.get(line[:3], 0) + 1
        time.sleep(0.001)
    launcher.stdout.close()
    launcher.stderr.close()
    launcher.wait(PATIENCE)
    counts = [seen.get(b"%d: " % rank, 0) for rank in range(3)]
    check(min(counts) > max(counts) / 10, counts)


def test_a_reader_that_leaves_ends_the_run():
    for command in ("yes", "sh -c 'while :; do echo x; sleep 0.01; done'"):
        shell = f"{CHOIR} run -n 3 {command}; echo $? > code"
        done = subprocess.run(["bash", "-c", f"({shell}) | head -2"], capture_output=True, timeout=PATIENCE)
        check(done.stdout.count(b"\n") == 2 and done.stderr == b"", done)
        wait_for("code")
        check(pathlib.Path("code").read_text() == "141\n", pathlib.Path("code").read_text())
        pathlib.Path("code").unlink()


def test_a_full_disk_is_told():
    with open("/dev/full", "wb") as full:
        launcher = start("-n", 2, "yes", stdout=full)
        _, err = launcher.communicate(timeout=PATIENCE)
    check(launcher.returncode == 1 and b"standard output: No space left" in err, launcher.returncode, err)
    with open("/dev/full", "wb") as full:
        launcher = start("echo", stdout=full)
        _, err = launcher.communicate(timeout=PATIENCE)
    check(launcher.returncode == 1 and b"standard output: No space left" in err, launcher.returncode, err)


def test_order_of_one_rank_is_kept_in_one_file():
    with open("both", "wb") as both:
        run("sh", "-c", "for i in 1 2 3; do echo out $i; sleep 0.05; echo err $i >&2; sleep 0.05; done", stdout=both, stderr=both,
            capture_output=False)
    check(pathlib.Path("both").read_text() == "".join(f"0: out {i}\n0: err {i}\n" for i in (1, 2, 3)),
          pathlib.Path("both").read_text())


def test_folding():
    done = run("-n", 4, "--fold", "sh", "-c", "echo same; test $RANK = 2 && echo mine; echo all")
    text = done.stdout.decode()
    # How many fold depends on how busy the machine is; that none is lost or out of order does not.
    seen = {i: [] for i in range(4)}
    for line in text.splitlines():
        ranks, _, rest = line.partition(": ")
        for part in ranks.split(","):
            first, _, last = part.partition("-")
            for rank in range(int(first), int(last or first) + 1):
                seen[rank].append(rest)
    expected = {i: ["same", "all"] for i in range(4)}
    expected[2] = ["same", "mine", "all"]
    check(seen == expected, text)
    done = run("-n", 4, "--fold", "seq", 20000)
    check(sum(line.count(",") + 1 for line in lines(done.stdout)) <= 80000 and done.returncode == 0)
    # All print within the time that lines wait for each other: one line, unless the machine is very busy.
    for attempt in range(20):
        if run("-n", 4, "--fold", "sh", "-c", "echo ready").stdout == b"0-3: ready\n":
            break
    else:
        check(False, "never folded")


main(globals())
