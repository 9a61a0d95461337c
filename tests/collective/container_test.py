#!/usr/bin/env python3
"""container_test.py - collectives need no /dev/shm and few descriptors; what is too little is said clearly."""
# timeout: 180
import resource

from ranks import *


def sings(what, size=4, **more):
    first = 17 * 7 + size - 1
    done = run_ranks(size, TESTS / "random_collective", "--join", "--seed", first, "--cases", 30, **more)
    check(done.returncode == 0, f"{what}: exit code {done.returncode}: {done.stdout}{done.stderr}")


def limited(descriptors):
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))


# Every rank holds some descriptors of each neighbour.
sings("100 descriptors, 4 ranks", preexec_fn=limited(100))
sings("256 descriptors, 17 ranks", size=17, preexec_fn=limited(256))
ranks = run_ranks(2, "sh", "-c", f"ulimit -n 8; exec {TESTS}/singer load 10", stdin=subprocess.DEVNULL)
check(ranks.returncode not in (0, 139, 134), f"8 descriptors: exit code {ranks.returncode}: {ranks.stderr}")
check("open files" in ranks.stderr.lower() or "EMFILE" in ranks.stderr, f"8 descriptors: {ranks.stderr}")

if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], stderr=subprocess.DEVNULL).returncode != 0:
    print("skip: mount namespaces are for root")
    sys.exit(77)
for what, mount in (("/dev/shm of 1 MB", "mount -t tmpfs -o size=1m none /dev/shm"),
                    ("/dev/shm read-only", "mount -t tmpfs -o ro none /dev/shm"),
                    ("no /dev/shm", "mount -t tmpfs -o size=64k none /dev && mknod /dev/null c 1 3 && "
                     "mknod /dev/urandom c 1 9")):
    sings(what, before=("unshare", "-m", "sh", "-c", mount + ' && exec "$@"', "sh"))
