#!/usr/bin/env python3
"""run_hosts_test.py - several hosts: --hosts, and one launcher per host. Network namespaces play the hosts."""
# timeout: 240
import atexit
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from launching import BUILD, CHOIR, PATIENCE, check, eventually, family, finish, lines, main, nothing_is_left, run, wait_for

A, B = f"choirA{os.getpid()}", f"choirB{os.getpid()}"
ADDRESS = "10.97.0.1"


def ip(*args, check_it=True):
    return subprocess.run(["ip", *args], capture_output=True, text=True, check=check_it)


def make_hosts():
    if os.geteuid() != 0 or ip("netns", "add", A, check_it=False).returncode != 0:
        print("skip: network namespaces need root and the command ip")
        sys.exit(77)
    atexit.register(lambda: [ip("netns", "del", name, check_it=False) for name in (A, B)])
    ip("netns", "add", B)
    ip("-n", A, "link", "add", "veth0", "type", "veth", "peer", "name", "veth0", "netns", B)
    for name, address in ((A, ADDRESS), (B, "10.97.0.2")):
        ip("-n", name, "addr", "add", f"{address}/24", "dev", "veth0")
        for device in ("lo", "veth0"):
            ip("-n", name, "link", "set", device, "up")


HOSTS = ("--rsh", "ip netns exec", "--rdzv", ADDRESS)


def on_hosts(*args, hosts=None, **options):
    return run(*HOSTS, "--hosts", hosts or f"{A}:2,{B}:2", *args, **options)


def launcher(node, *args, nnodes=2, nproc=1, port=4711, token="token", where=None, **options):
    """One of the launchers that people start themselves."""
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen(["ip", "netns", "exec", where or (A, B)[node], CHOIR, "run", "-n", str(nproc), "--nnodes", str(nnodes),
                             "--node-rank", str(node), "--rdzv", f"{ADDRESS}:{port}", "--token-file", token,
                             *map(str, args)], **options)


def write_token(name="token", digits="ab"):
    pathlib.Path(name).write_text(digits * 32)
    os.chmod(name, 0o600)


def test_ranks_are_numbered_by_host():
    done = on_hosts("sh", "-c", "echo $RANK/$WORLD_SIZE $CHOIR_NODE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE",
                    hosts=f"{A}:1,{B}:3")
    check(done.returncode == 0 and done.stderr == b"", done)
    check(sorted(lines(done.stdout)) == ["0:0: 0/4 0 0/1 0/2", "1:1: 1/4 1 0/3 1/2", "1:2: 2/4 1 1/3 1/2",
                                         "1:3: 3/4 1 2/3 1/2"], done)
    done = on_hosts("-n", 2, "--ranks", "1,2", "sh", "-c", "echo $RANK", hosts=f"{A},{B}")
    check(sorted(lines(done.stdout)) == ["0:1: 1", "1:2: 2"], done)


def test_all_see_the_same_store():
    done = on_hosts("--no-prefix", "sh", "-c", "echo $CHOIR_STORE $MASTER_ADDR:$MASTER_PORT $TORCHELASTIC_RUN_ID")
    check(len(set(lines(done.stdout))) == 1 and len(lines(done.stdout)) == 4, done)
    check(re.fullmatch(rf"tcp://{ADDRESS}:\d+ {ADDRESS}:\d+ \w+", lines(done.stdout)[0]), done)


def test_arguments_arrive_as_they_are():
    odd = ["a b", "*", "$HOME", "'", '"', "", "é", "--", "-n"]
    done = on_hosts("--no-prefix", "--env", "ODD=x y;z", sys.executable, "-c",
                    "import os, sys; print([sys.argv[1:], os.environ['ODD'], os.getcwd()])", *odd, hosts=f"{A},{B}")
    check(lines(done.stdout) == [str([odd, "x y;z", os.getcwd()])] * 2, done)


def test_ranks_meet_across_hosts():
    done = on_hosts("--ranks", 0, BUILD / "bin/examples/say_hello")
    check(done.returncode == 0 and done.stdout.count(b"on another host") == 2, done)


def test_input_goes_to_rank_0():
    text = b"".join(b"line %d\n" % i for i in range(100000))
    done = on_hosts("sh", "-c", "cat > in.$RANK", input=text)
    check(done.returncode == 0 and pathlib.Path("in.0").read_bytes() == text, done)
    check(all(pathlib.Path(f"in.{i}").read_bytes() == b"" for i in (1, 2, 3)))
    done = on_hosts("true", input=text)  # nobody reads it
    check(done.returncode == 0, done)


def test_output_arrives_whole():
    done = on_hosts("seq", 20000)
    seen = {}
    for line in lines(done.stdout):
        rank, _, rest = line.rpartition(": ")
        seen.setdefault(rank, []).append(rest)
    check(seen == {r: [str(i) for i in range(1, 20001)] for r in ("0:0", "0:1", "1:2", "1:3")},
          {r: len(v) for r, v in seen.items()})


def test_a_failure_ends_all():
    for failing in (0, 3):
        began = time.monotonic()
        done = on_hosts("sh", "-c", f"test $RANK != {failing} || {{ echo oops >&2; kill -9 $$; }}; sleep 600")
        check(done.returncode == 137 and done.stderr.count(b"killed by signal 9") == 1, done)
        check(f"rank {failing} (node {failing // 2}".encode() in done.stderr and b"    oops" in done.stderr, done)
        check(time.monotonic() - began < 10, "took", time.monotonic() - began)
    done = on_hosts("sh", "-c", "exit 7", hosts=f"{A}:1")
    check(done.returncode == 7 and done.stderr.count(b"\n") == 1, done)
    done = on_hosts("no-such-program")
    check(done.returncode == 127, done)
    done = on_hosts("--timeout", 0.5, "sleep", 600)
    check(done.returncode == 124 and done.stderr.count(b"\n") == 1, done)
    nothing_is_left()


def test_a_host_that_cannot_be_reached():
    done = on_hosts("sleep", 600, hosts=f"{A}:1,no-such-host:1")
    check(done.returncode not in (0, 2) and b"node 1 (no-such-host)" in done.stderr, done)
    done = run("--hosts", "a,b", "--rsh", "no-such-rsh", "true")
    check(done.returncode == 127 and b"no-such-rsh" in done.stderr, done)


def front(*args):
    process = subprocess.Popen([CHOIR, "run", *HOSTS, "--hosts", f"{A}:1,{B}:1", *args], stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for("ready.*", 2)
    return process


READY = ("sh", "-c", "(setsid sleep 600 &); trap 'touch asked.$RANK; exit 0' TERM; touch ready.$RANK; "
         "while :; do sleep 0.01; done")


def test_signals_reach_all_hosts():
    process = front(*READY)
    process.send_signal(signal.SIGINT)
    rc, _, err = finish(process)
    check(rc == 130 and err.count(b"choir run:") == 1, rc, err)
    check(len(list(pathlib.Path(".").glob("asked.*"))) == 2, os.listdir())
    nothing_is_left()


def test_the_first_launcher_killed():
    process = front(*READY)
    process.kill()
    process.communicate()
    nothing_is_left()


def test_a_hosts_launcher_killed():
    for node in (0, 1):
        for old in pathlib.Path(".").iterdir():
            old.unlink()
        process = front(*READY)
        parents = {}
        for pid, line in family().items():
            if "--controlled" in line:
                parents[pid] = pathlib.Path(f"/proc/{pid}/ns/net").stat().st_ino
        space = pathlib.Path("/run/netns", (A, B)[node]).stat().st_ino
        os.kill(next(pid for pid, ns in parents.items() if ns == space), signal.SIGKILL)
        rc, _, err = finish(process)
        check(rc == 137 and f"node {node} (".encode() in err, rc, err)
        nothing_is_left()


def test_launchers_started_by_people():
    write_token()
    first = launcher(0, "sh", "-c", "cat; echo $RANK/$WORLD_SIZE", nproc=1, stdin=subprocess.PIPE)
    second = launcher(1, "sh", "-c", "echo $RANK/$WORLD_SIZE", nproc=2)
    out, err = first.communicate(b"typed\n", timeout=PATIENCE)
    check(first.returncode == 0 and out == b"0:0: typed\n0:0: 0/3\n", first.returncode, out, err)
    rc, out, err = finish(second)
    check(rc == 0 and sorted(lines(out)) == ["1:1: 1/3", "1:2: 2/3"], rc, out, err)


def test_they_end_with_the_same_code():
    write_token()
    script = "test $RANK != 1 || { touch ready; exit 9; }; sleep 600"
    both = [launcher(node, "sh", "-c", script, port=4712) for node in (0, 1)]
    ended = [finish(process) for process in both]
    check([rc for rc, _, _ in ended] == [9, 9], ended)
    check(all(b"rank 1 (node 1" in err and b"code 9" in err for _, _, err in ended), ended)
    # A signal to one of them.
    both = [launcher(node, "sh", "-c", "touch going.$RANK; sleep 600", port=4713) for node in (0, 1)]
    wait_for("going.*", 2)
    both[1].send_signal(signal.SIGTERM)
    check([finish(process)[0] for process in both] == [143, 143], "after SIGTERM")


def test_node_0_killed():
    write_token()
    both = [launcher(node, "sh", "-c", "touch going.$RANK; sleep 600", port=4714) for node in (0, 1)]
    wait_for("going.*", 2)
    both[0].kill()
    both[0].communicate()
    rc, _, err = finish(both[1])
    check(rc == 1 and b"node 0 is lost" in err, rc, err)
    nothing_is_left()


def test_another_node_killed():
    """Nothing tells node 0 but silence: six seconds of it."""
    write_token()
    both = [launcher(node, "sh", "-c", "touch going.$RANK; sleep 600", port=4715) for node in (0, 1)]
    wait_for("going.*", 2)
    both[1].kill()
    both[1].communicate()
    rc, _, err = finish(both[0])
    check(rc == 1 and b"node 1 (" in err and b"lost" in err, rc, err)
    nothing_is_left()


def test_launchers_that_disagree():
    write_token()
    write_token("other", "cd")
    both = [launcher(0, "true", port=4716), launcher(1, "true", nnodes=3, port=4716)]
    for process in both:
        rc, _, err = finish(process)
        check(rc == 1 and b"--nnodes 2" in err and b"--nnodes 3" in err, rc, err)
    # The same number twice: the one that comes later is told, the others are not troubled.
    first = launcher(0, "true", port=4717)
    twice = [launcher(1, "sh", "-c", "touch going.$RANK; while ! test -e go; do sleep 0.01; done", port=4717)]
    wait_for("going.*", 1)
    twice.append(launcher(1, "true", port=4717))
    rc, _, err = finish(twice[1])
    check(rc == 1 and b"--node-rank 1" in err, rc, err)
    pathlib.Path("go").touch()
    check([finish(first)[0], finish(twice[0])[0]] == [0, 0])
    # Another token.
    first = launcher(0, "true", port=4718)
    rc, _, err = finish(launcher(1, "true", port=4718, token="other"))
    check(rc == 1 and b"token" in err, rc, err)
    first.send_signal(signal.SIGTERM)
    check(finish(first)[0] == 143, "waiting for the others can be ended")


make_hosts()
main(globals())
