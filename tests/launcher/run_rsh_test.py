#!/usr/bin/env python3
"""run_rsh_test.py - --hosts through something like ssh: a client here, a server elsewhere, a shell between.

The commands run as children of a server in this test, not as descendants of the launcher: what reaches them
is their input, its end, and nothing else. As with sshd, their input ends when the client is gone, and a shell
reads the command.
"""
# timeout: 180
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from launching import CHOIR, check, family, finish, lines, main, nothing_is_left, run, wait_for

CLIENT = r'''#!{python}
import os, socket, struct, sys, threading
host, command = sys.argv[1], " ".join(sys.argv[2:])
s = socket.socket(socket.AF_UNIX)
s.connect({address!r})
s.sendall((host + " " + command + "\n").encode())
def feed():
    while data := os.read(0, 65536):
        s.sendall(data)
    s.shutdown(socket.SHUT_WR)
threading.Thread(target=feed, daemon=True).start()
stream = s.makefile("rb")
while head := stream.read(5):
    kind, size = struct.unpack("<BI", head)
    data = stream.read(size)
    if kind == 0:
        os._exit(data[0])
    while data:
        data = data[os.write(kind, data):]
os._exit(255)
'''


def serve(connection):
    """One session: the command, its input from the client, its two outputs and its code to the client."""
    stream = connection.makefile("rb", buffering=0)
    _, _, command = stream.readline().decode().rstrip("\n").partition(" ")
    child = subprocess.Popen(["sh", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             bufsize=0, start_new_session=True)
    lock = threading.Lock()

    def send(kind, data):
        with lock:
            try:
                connection.sendall(struct.pack("<BI", kind, len(data)) + data)
            except OSError:
                pass

    def feed():
        try:
            while data := stream.read(65536):
                child.stdin.write(data)
        except OSError:
            pass
        child.stdin.close()

    def pump(kind, pipe):
        while data := os.read(pipe.fileno(), 65536):
            send(kind, data)

    threading.Thread(target=feed, daemon=True).start()
    pumps = [threading.Thread(target=pump, args=args) for args in ((1, child.stdout), (2, child.stderr))]
    for thread in pumps:
        thread.start()
    for thread in pumps:
        thread.join()
    code = child.wait()
    child.stdout.close()
    child.stderr.close()
    send(0, bytes([code if code >= 0 else 128 - code]))
    connection.close()


def start_server():
    listener = socket.socket(socket.AF_UNIX)
    address = f"\0launcher-test-{os.getpid()}"
    listener.bind(address)
    listener.listen(100)

    def accept():
        while True:
            threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
    threading.Thread(target=accept, daemon=True).start()
    client = pathlib.Path("client").resolve()
    client.write_text(CLIENT.format(python=sys.executable, address=address))
    client.chmod(0o755)
    return str(client)


RSH = start_server()
HOSTS = ("--rsh", RSH, "--rdzv", "127.0.0.1", "--hosts", "a:1,b:2")


def test_like_one_host():
    odd = ["a b", "*", "$HOME", "`id`", "'", '"', "", ";", "é\n"]
    done = run(*HOSTS, "--no-prefix", sys.executable, "-c",
               "import os, sys; print([os.environ['RANK'], sys.argv[1:], os.getcwd()])", *odd)
    check(done.returncode == 0, done)
    check(sorted(lines(done.stdout)) == [str([str(i), odd, os.getcwd()]) for i in range(3)], done)


def test_input_and_codes():
    text = b"x" * 300000 + b"\n"
    done = run(*HOSTS, "--ranks", 0, "cat", input=text)
    check(done.returncode == 0 and done.stdout == b"0:0: " + text, done.returncode, len(done.stdout), done.stderr)
    done = run(*HOSTS, "sh", "-c", "test $RANK != 2 || exit 77; sleep 600")
    check(done.returncode == 77 and b"rank 2 (node 1" in done.stderr, done)


def test_the_first_hosts_name_is_where_the_store_is():
    done = run("--rsh", RSH, "--hosts", "me@localhost:1,b:1", "--no-prefix", "sh", "-c", "echo $CHOIR_STORE")
    check(done.returncode == 0 and len(set(lines(done.stdout))) == 1, done)
    check(lines(done.stdout)[0].startswith(("tcp://127.0.0.1:", "tcp://[::1]:")), done)
    done = run("--rsh", RSH, "--hosts", "no-such-name.invalid:1,b:1", "true")
    check(done.returncode == 1 and b"no-such-name.invalid" in done.stderr, done)


READY = ("sh", "-c", "(setsid sleep 600 &); trap 'touch asked.$RANK; exit 0' TERM; touch ready.$RANK; "
         "while :; do sleep 0.01; done")


def front():
    process = subprocess.Popen([CHOIR, "run", *HOSTS, *READY], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    wait_for("ready.*", 3)
    return process


def test_signals_go_through_the_input():
    process = front()
    process.send_signal(signal.SIGTERM)
    rc, _, err = finish(process)
    check(rc == 143 and len(list(pathlib.Path(".").glob("asked.*"))) == 3, rc, err, os.listdir())
    nothing_is_left()


def test_a_lost_connection_ends_what_is_there():
    process = front()
    process.kill()
    process.communicate()
    nothing_is_left()


def test_one_connection_lost():
    process = front()
    client = next(pid for pid, line in family().items() if f"{RSH} b " in line)
    os.kill(client, signal.SIGKILL)
    rc, _, err = finish(process)
    check(rc == 137 and b"node 1 (b)" in err, rc, err)
    nothing_is_left()


main(globals())
