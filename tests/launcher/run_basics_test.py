#!/usr/bin/env python3
"""run_basics_test.py - `choir run`: ranks, exit codes, the summary, environment, input, files, pinning."""
# timeout: 120
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from launching import CHOIR, SOURCE, check, lines, main, run


def test_four_ranks():
    done = run("-n", 4, "--", "sh", "-c", "echo $RANK/$WORLD_SIZE")
    check(sorted(lines(done.stdout)) == [f"{i}: {i}/4" for i in range(4)], done)
    check(done.returncode == 0 and done.stderr == b"", done)


def test_options_end_at_the_program():
    for args in (["-n2", "echo", "-n", "x"], ["--nproc=2", "--", "echo", "-n", "x"], ["-n", 2, "echo", "-n", "x"]):
        done = run(*args)
        check(sorted(lines(done.stdout)) == ["0: x", "1: x"] and done.returncode == 0, args, done)


def test_called_wrongly():
    rows = [["-n", "0", "true"], ["-n", "x", "true"], ["-n"], [], ["--bogus", "true"], ["-n", "70000", "true"],
            ["--bind", "socket", "true"], ["--timeout", "0", "true"], ["--ranks", "1-", "true"],
            ["--no-prefix=1", "true"], ["--env", "=x", "true"], ["--hosts", "a:0", "true"], ["--color", "x", "true"],
            ["--node-rank", "0", "true"], ["--nnodes", "2", "true"], ["--nnodes", "2", "--node-rank", "2", "true"],
            ["--nnodes", "2", "--node-rank", "0", "--rdzv", "h:1", "true"], ["--rsh", "x", "true"],
            ["--hosts", "a", "--nnodes", "2", "true"], ["--rdzv", "h:1", "true"], ["-n", "2"]]
    for args in rows:
        done = run(*args)
        check(done.returncode == 2 and done.stderr.count(b"\n") == 1 and done.stdout == b"", args, done)


def test_first_failure_is_the_exit_code():
    began = time.monotonic()
    done = run("-n", 3, "--", "sh", "-c", "test $RANK != 1 || kill -9 $$; sleep 20")
    took = time.monotonic() - began
    check(done.returncode == 137 and b"rank 1 " in done.stderr and b"signal 9 " in done.stderr, done)
    check(b"2 other ranks were ended" in done.stderr, done)
    check(took < 10, "took", took)  # 0.01 s on an idle machine
    done = run("-n", 3, "--", "sh", "-c", "test $RANK != 2 || exit 7; sleep 20")
    check(done.returncode == 7 and b"rank 2 " in done.stderr and b"code 7 " in done.stderr, done)


def test_a_rank_that_does_not_want_to_end_is_killed():
    began = time.monotonic()
    done = run("-n", 2, "--grace", 0.3, "--", "sh", "-c", "trap '' TERM; if test $RANK = 1; then touch ready; sleep 60;"
               "else while ! test -e ready; do sleep 0.01; done; exit 5; fi")
    check(done.returncode == 5 and time.monotonic() - began >= 0.3, done)


def test_last_lines_of_stderr_are_in_the_summary():
    done = run("-n", 2, "--ranks", 0, "--", "sh", "-c", "test $RANK = 0 && exec sleep 20; seq 100 200 >&2; printf tail >&2; exit 3")
    summary = done.stderr.decode()
    check(summary.endswith("    197\n    198\n    199\n    200\n    tail\n") and "    196" not in summary, summary)
    check("rank 1 " in summary and "1: " not in summary and done.returncode == 3, summary)
    # Longer than what is kept: the cut line is not told, a single long one is.
    done = run("--", "sh", "-c", "yes abcdefghij | head -c 20000 | tr -d '\\n' >&2; exit 3")
    check(re.search(r"^    [a-j]{2048}$", done.stderr.decode(), re.M), done.stderr[-300:])


def test_program_that_cannot_be_started():
    done = run("-n", 2, "no-such-program")
    check(done.returncode == 127 and done.stderr.count(b"\n") == 1 and b"no-such-program" in done.stderr, done)
    pathlib.Path("plain").write_text("text")
    done = run("-n", 2, "./plain")
    check(done.returncode == 126 and b"./plain" in done.stderr, done)
    pathlib.Path("script").write_text("echo from a script without a first line\n")
    os.chmod("script", 0o755)
    check(run("./script").stdout == b"0: from a script without a first line\n", run("./script"))


def test_timeout():
    began = time.monotonic()
    done = run("-n", 2, "--timeout", 0.2, "sleep", 60)
    check(done.returncode == 124 and b"timeout" in done.stderr and time.monotonic() - began >= 0.2, done)
    check(run("-n", 2, "--timeout", 100, "true").returncode == 0)


def test_five_hundred_ranks():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    done = run("-n", 500, "true", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard)))
    check(done.returncode == 0 and done.stdout == b"" and done.stderr == b"", done)
    # The limit is the launcher's own affair.
    done = subprocess.run(["sh", "-c", f"ulimit -Sn 256; {CHOIR} run --no-prefix sh -c 'ulimit -Sn'"], capture_output=True)
    check(done.stdout == b"256\n", done)


def environment(*args, **options):
    done = run(*args, "--no-prefix", "env", "-0", **options)
    return dict(entry.split("=", 1) for entry in done.stdout.decode().split("\0") if "=" in entry)


def test_environment():
    rows = {"CHOIR_RANK": "0", "CHOIR_SIZE": "2", "CHOIR_LOCAL_RANK": "0", "CHOIR_LOCAL_SIZE": "2", "CHOIR_NODE": "0",
            "RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0",
            "GROUP_WORLD_SIZE": "1", "ROLE_RANK": "0", "ROLE_WORLD_SIZE": "2", "ROLE_NAME": "default",
            "MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "0",
            "TORCHELASTIC_USE_AGENT_STORE": "True", "OMP_NUM_THREADS": "1", "HERE": "there"}
    outer = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    outer.update(RANK="9", CHOIR_TOKEN_FILE="/nowhere", HERE="here")
    seen = environment("-n", 2, "--ranks", 0, "--env", "HERE=there", env=outer)
    for name, value in rows.items():
        check(seen.get(name) == value, name, "is", seen.get(name), "not", value)
    check(re.fullmatch(r"tcp://127\.0\.0\.1:\d+", seen["CHOIR_STORE"]) and seen["MASTER_PORT"].isdigit(), seen)
    check(seen["TORCHELASTIC_RUN_ID"] and "CHOIR_TOKEN_FILE" not in seen, seen)
    # The page says what is set.
    page = (SOURCE / "man/man1/choir-run.1").read_text()
    for name in set(rows) - {"HERE"}:
        check(name in page, name, "is not in choir-run(1)")
    alone = environment("--no-torch-store", env={**outer, "MASTER_ADDR": "old", "OMP_NUM_THREADS": "3"})
    check("MASTER_ADDR" not in alone and "TORCHELASTIC_USE_AGENT_STORE" not in alone, alone)
    check(environment(env=outer).get("OMP_NUM_THREADS") is None, "OMP_NUM_THREADS for one rank")
    check(environment("-n", 2, "--ranks", 0, env={**outer, "OMP_NUM_THREADS": "3"})["OMP_NUM_THREADS"] == "3")


def test_signals_are_as_they_were_for_ranks():
    done = run("--no-prefix", "grep", "^Sig[BI]", "/proc/self/status")
    alone = subprocess.run(["grep", "^Sig[BI]", "/proc/self/status"], capture_output=True)
    check(done.stdout == alone.stdout, done.stdout, alone.stdout)


def test_standard_input_goes_to_rank_0():
    text = b"".join(b"line %d\n" % i for i in range(50000))
    done = run("-n", 2, "--", "sh", "-c", "cat > in.$RANK", input=text)
    check(done.returncode == 0 and pathlib.Path("in.0").read_bytes() == text, "rank 0's input differs", done)
    check(pathlib.Path("in.1").read_bytes() == b"", "rank 1 has input")
    # None of the three standard descriptors is needed.
    done = subprocess.run(["sh", "-c", f"{CHOIR} run -n 2 sh -c 'cat; touch ran.$RANK' <&- >&- 2>&-"], timeout=60)
    check(done.returncode == 0 and len(list(pathlib.Path(".").glob("ran.*"))) == 2, done)


def test_a_later_rank_that_cannot_be_started_is_named():
    # A binary, not a script: what a rank was started from is loaded even if it is gone a moment later.
    shutil.copy("/bin/sh", "once")
    done = run("-n", 300, "--", "./once", "-c", "rm -f once; sleep 600")
    check(done.returncode == 127 and re.search(rb'cannot start "./once" as rank [1-9]\d*: No such file', done.stderr), done)


def test_output_in_files():
    done = run("-n", 3, "--output", "logs", "--", "sh", "-c", "printf 'to out %s' $RANK; test $RANK != 1 || echo to err >&2")
    check(done.returncode == 0 and done.stdout == b"" and done.stderr == b"", done)
    seen = {p.name: p.read_bytes() for p in pathlib.Path("logs").iterdir()}
    check(seen == {"rank.0.out": b"to out 0", "rank.1.out": b"to out 1", "rank.2.out": b"to out 2",
                   "rank.1.err": b"to err\n"}, seen)
    done = run("-n", 3, "--output", "logs", "--ranks", 2, "echo", "x")
    check(done.stdout == b"2: x\n" and pathlib.Path("logs/rank.0.out").read_bytes() == b"x\n", done)
    pathlib.Path("file").touch()
    done = run("--output", "file", "true")
    check(done.returncode == 1 and b"file" in done.stderr, done)
    done = run("-n", 60, "--output", "/proc", "true")  # where nobody can make a file
    check(done.returncode == 1 and b"rank 0 prints to folder \"/proc\"" in done.stderr, done)
    os.symlink("/dev/full", "logs/rank.0.err")
    done = run("--output", "logs", "sh", "-c", "echo x >&2; sleep 60")
    check(done.returncode == 1 and b"No space" in done.stderr, done)


def test_filter():
    done = run("-n", 6, "--ranks", "0,2-3", "sh", "-c", "echo $RANK; echo e >&2")
    check(sorted(lines(done.stdout)) == ["0: 0", "2: 2", "3: 3"], done)
    check(sorted(lines(done.stderr)) == ["0: e", "2: e", "3: e"], done)


def affinities(*args, **options):
    done = run(*args, "sh", "-c", "echo $(grep Cpus_allowed_list /proc/self/status)", **options)
    return [line.split()[-1] for line in sorted(lines(done.stdout))], done.stderr.decode()


def test_pinning():
    whole = re.search(r"Cpus_allowed_list:\s*(\S+)", pathlib.Path("/proc/self/status").read_text()).group(1)
    processors = sorted(os.sched_getaffinity(0))
    seen, _ = affinities("-n", 2, "--bind", "none")
    check(seen == [whole] * 2, seen)
    if len(processors) >= 2:
        seen, said = affinities("-n", 2, "--bind", "core", "--verbose")
        check(len(set(seen)) == 2 and whole not in seen and "rank 1 of this host: processor" in said, seen, said)
        check(affinities("-n", 2)[0] == seen or "CHOIR_PROCESSORS" in os.environ, "not the default", affinities("-n", 2))
        # Only what the launcher itself may use.
        last = processors[-1]
        seen, _ = affinities("-n", 2, "--bind", "core", preexec_fn=lambda: os.sched_setaffinity(0, {last}))
        check(seen == [str(last)] * 2, seen)
    seen, said = affinities("-n", len(processors) + 1, "--verbose")
    check(seen == [whole] * len(seen) and "not pinned" in said, seen, said)


def test_ranks_share_a_session():
    """Processors are shared out between sessions first: in one of its own a rank that yields would not let another run."""
    seen = lines(run("-n", 3, "--no-prefix", "--no-fold", "cut", "-d ", "-f5,6", "/proc/self/stat").stdout)
    groups, sessions = zip(*(line.split() for line in seen))
    check(len(set(groups)) == 3 and len(set(sessions)) == 1, seen)
    check(int(sessions[0]) != os.getsid(0), "the launcher's session", seen)


main(globals())
