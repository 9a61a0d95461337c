#!/usr/bin/env python3
"""perf_command_test.py - choir perf: every operation is measured and verified, as table, JSON and page, and its manners."""
# timeout: 120
import json
import os
import pathlib
import pty
import re
import subprocess
import sys
import xml.etree.ElementTree as ET

CHOIR = pathlib.Path(os.environ["CHOIR_TEST_BUILD"]) / "bin/choir"
OPERATIONS = ["allreduce", "broadcast", "reduce", "allgather", "reducescatter", "alltoall", "gather", "scatter", "barrier", "sendrecv"]
KEYS = {"op", "bytes", "count", "type", "redop", "ranks", "memory", "fresh", "algo", "p50_us", "min_us", "p99_us", "algbw_gbs",
        "busbw_gbs", "wrong"}
RANK_VARIABLES = ("CHOIR_RANK", "RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "CHOIR_ALGO")
ENV = {k: v for k, v in os.environ.items() if k not in RANK_VARIABLES}
QUICK = ["--iters", "5"]
failures = []


def check(condition, *told):
    if not condition:
        failures.append(" ".join(map(str, told)))


def perf(*args, **options):
    return subprocess.run([CHOIR, "perf", *map(str, args)], **{"capture_output": True, "text": True, "env": ENV, **options})


def rows(done):
    try:
        return [json.loads(line) for line in done.stdout.splitlines()]
    except ValueError as wrong:
        failures.append(f"no JSON: {wrong} in {done}")
        return []


def measure(*args, sizes=None, **wanted):
    """All rows are right, have the keys, and say what was asked for."""
    done = perf(*args, *QUICK, "--json")
    found = rows(done)
    check(done.returncode == 0 and found, args, done)
    for row in found:
        check(KEYS <= set(row) and row["wrong"] == 0, args, row)
        check(0 < row["min_us"] <= row["p50_us"] <= row["p99_us"], args, row)
        check({k: row[k] for k in wanted} == wanted, args, wanted, row)
        machine = row["machine"]
        check(machine["cpu"] and machine["processors"] > 0 and {"load", "steal_percent", "quiet"} <= set(machine), machine)
    if sizes is not None:
        check([row["bytes"] for row in found] == sizes, args, "sizes", [row["bytes"] for row in found])
    return found


# Called wrongly: exit code 2, one line on standard error, nothing on standard output, and no rank was started.
for args, word in (([], "operation"), (["allredcue"], "allredcue"), (["allreduce", "broadcast"], "broadcast"),
                   (["allreduce", "--bogus"], "--bogus"), (["allreduce", "-n"], "needs a value"), (["allreduce", "-n", "0"], '"0"'),
                   (["allreduce", "-b", "1X"], '"1X"'), (["allreduce", "-b", "0"], "from 0"), (["allreduce", "-e", "0"], "to 0"),
                   (["allreduce", "-b", "8K", "-e", "4K"], "there is none"),
                   (["allreduce", "-f", "1"], '"1"'), (["allreduce", "--iters", "0"], '"0"'), (["allreduce", "--type", "f33"], "f33"),
                   (["allreduce", "--redop", "mean"], "mean"), (["allreduce", "--redop", "band"], "band"),
                   (["broadcast", "-n", "2", "--root", "2"], "2 ranks"), (["allreduce", "--memory", "pink"], "ordinary"),
                   (["allreduce", "--bind", "chair"], "chair"), (["allreduce", "-n", "2", "--algo", "rign"], "it has inline"),
                   (["sendrecv", "--inplace"], "one buffer"), (["sendrecv", "--algo", "ring"], "no algorithms"),
                   (["allreduce", "--html", ""], '""'), (["allreduce", "--machine", "here"], "--explain-cost")):
    done = perf(*args)
    check(done.returncode == 2 and done.stderr.count("\n") == 1 and done.stdout == "" and word in done.stderr, args, done)
# A page that cannot be written is told before ranks are started, in one line; what is there stays until another is whole.
for how in ([], ["--threads"]):
    done = perf("allreduce", "-n", 2, "-e", 8, *how, "--html", "nowhere/x.html")
    check(done.returncode == 1 and done.stderr == "choir perf: nowhere/x.html: No such file or directory\n" and done.stdout == "", done)
done = subprocess.run([CHOIR, "run", "--no-prefix", "-n", "2", CHOIR, "perf", "allreduce", "-e", "8", "--html", "nowhere/x.html"],
                      capture_output=True, text=True, env=ENV)
check(done.returncode == 1 and done.stderr.startswith("choir perf: nowhere/x.html: No such") and "choir perf: rank" not in done.stderr, done)
pathlib.Path("before.html").write_text("as it was")
done = perf("allreduce", "-n", 2, "-b", "512T", "-e", "512T", "--html", "before.html", *QUICK)
check(done.returncode == 1 and pathlib.Path("before.html").read_text() == "as it was" and os.listdir() == ["before.html"], done, os.listdir())
done = perf("allreduce", "-n", 2, "-e", 8, "--html", "before.html", *QUICK)
check(done.returncode == 0 and "</html>" in pathlib.Path("before.html").read_text() and os.listdir() == ["before.html"], done, os.listdir())
# Who may read it stays as it was, or is as of any new file; a link planted under a name that can be guessed leads nowhere.
os.chmod("before.html", 0o604)
pathlib.Path("victim").write_text("as it was")
script = 'umask 026; for name in before new; do ln -s victim $name.html.$$; done; exec "$0" perf allreduce -n 2 -e 8 --threads --iters 5 --html "$1"'
for name, mode in (("before.html", 0o604), ("new.html", 0o640)):
    pathlib.Path("before.html").write_text("as it was")
    done = subprocess.run(["sh", "-c", script, CHOIR, name], capture_output=True, text=True, env=ENV)
    check(done.returncode == 0 and "</html>" in pathlib.Path(name).read_text() and os.stat(name).st_mode & 0o777 == mode, name, done, os.stat(name))
    check(pathlib.Path("victim").read_text() == "as it was", name, "a planted link was followed")
# What is lost is told, and why if that is known.
done = perf("allreduce", "-n", 2, "-e", 8, "--html", "/dev/full", *QUICK)
check(done.returncode == 1 and re.search("choir perf: /dev/full: (No space left|not all of it)", done.stderr), done)
# That ranks are not called in the same way is told while they look at the page's place.
script = '[ $CHOIR_RANK = 0 ] && exec "$0" perf allreduce -e 8 --html page.html; "$0" perf allreduce -e 8; sleep 5; exit 1'
done = subprocess.run([CHOIR, "run", "--no-prefix", "-n", "2", "sh", "-c", script, CHOIR], capture_output=True, text=True, env=ENV)
check(done.returncode == 1 and "choir perf: rank 0: " in done.stderr, done)

# Every operation, with three ranks that do not divide the sizes, a root that is not 0; also in place, as threads, with every round verified.
for op in OPERATIONS:
    rooted = ["--root", 2] if op in ("broadcast", "reduce", "gather", "scatter") else []
    for extra in ([], ["--inplace", "--check"], ["--threads", "--fresh"], ["--check", "--type", "bf16"]):
        if op != "sendrecv" or "--inplace" not in extra:
            measure(op, "-n", 3, "-b", 4, "-e", 100001, "-f", 331, *rooted, *extra, op=op, ranks=3, memory="ordinary",
                    fresh="--fresh" in extra, sizes=[0] if op == "barrier" else [4, 1324])
measure("allreduce", "-n", 1, "-e", 64, sizes=[8, 16, 32, 64], busbw_gbs=0)
measure("reduce_scatter", "-n", 2, "-b", "1M", "-e", "1M", sizes=[1 << 20], op="reducescatter", count=1 << 18)

# Types and reductions.
types = [t for t in "u8 i8 u16 i16 u32 i32 u64 i64 f16 bf16 f32 f64 f8e4m3 f8e5m2".split()]
for t in types:
    measure("allreduce", "--threads", "-n", 2, "-b", 5000, "-e", 5000, "--type", t, type=t, redop="sum")
for t, op in (("f32", "avg"), ("i32", "avg"), ("f16", "product"), ("i8", "product"), ("f64", "min"), ("bf16", "max"), ("u8", "band"), ("i64", "bor"),
              ("u32", "bxor"), ("f32", "premul-sum"), ("bool", "max"), ("complex64", "sum"), ("complex128", "avg")):
    measure("reducescatter", "--threads", "-n", 3, "-b", 5000, "-e", 5000, "--type", t, "--redop", op, type=t, redop=op)

# The bus bandwidth of nccl-tests: 2(n-1)/n of the other for an all-reduce, (n-1)/n for an all-gather.
for op, factor in (("allreduce", 1.5), ("allgather", 0.75), ("broadcast", 1)):
    for row in measure(op, "--threads", "-n", 4, "-b", "64K", "-e", "64K"):
        check(abs(row["busbw_gbs"] / row["algbw_gbs"] - factor) < 0.05, op, row)
        check(abs(row["algbw_gbs"] / (row["bytes"] / row["p50_us"] / 1000) - 1) < 0.05, op, row)

# Algorithms by name; sizes that one cannot do are left out, and that is said.
measure("allreduce", "-n", 2, "-b", "4K", "-e", "4K", "--algo", "ring", algo="ring")
done = perf("allreduce", "-n", 2, "-b", 8, "-e", 512, "-f", 8, "--algo", "inline", "--json", *QUICK)
check([r["bytes"] for r in rows(done)] == [8, 64] and "512 bytes left out" in done.stderr, done)

# Inside choir run the ranks are the run's; -n has to agree.
done = subprocess.run([CHOIR, "run", "--no-prefix", "-n", "3", CHOIR, "perf", "allreduce", "-e", "8", "--json", *QUICK],
                      capture_output=True, text=True, env=ENV)
check(done.returncode == 0 and [r["ranks"] for r in rows(done)] == [3], done)
done = subprocess.run([CHOIR, "run", "--no-prefix", "-n", "3", CHOIR, "perf", "allreduce", "-n", "2", "-e", "8"],
                      capture_output=True, text=True, env=ENV)
check(done.returncode == 2 and "has 3 ranks" in done.stderr, done)
for args, word in ((["allreduce", "--algo", "rign"], "it has inline"), (["gather", "--root", "2"], "2 ranks")):
    done = subprocess.run([CHOIR, "run", "--no-prefix", "-n", "2", CHOIR, "perf", *args, "-e", "8"], capture_output=True, text=True, env=ENV)
    check(done.returncode == 2 and word in done.stderr and not done.stdout, args, done)
# Bound by the launcher, they know that they have a processor each.
if len(os.sched_getaffinity(0)) > 1:
    done = subprocess.run([CHOIR, "run", "--no-prefix", "-n", "2", CHOIR, "perf", "allreduce", "-b", "32K", "-e", "32K", "--json", *QUICK],
                          capture_output=True, text=True, env=ENV)
    row = rows(done)[-1]
    check(row["machine"]["processors"] > 1 and row["bound"] and row["algo"] == measure("allreduce", "-n", 2, "-b", "32K", "-e", "32K")[0]["algo"], row)
# A batch script of Slurm is no rank, a step is.
for step, code in (({}, 0), ({"SLURM_STEP_ID": "0"}, 1)):
    done = perf("allreduce", "-n", 2, "-e", 8, "--json", *QUICK,
                env={**ENV, "SLURM_PROCID": "0", "SLURM_NTASKS": "2", **step})
    check(done.returncode == code and (code == 0 or "Slurm" in done.stderr), step, done)
# What there is no memory for is said, and nothing else.
for nbytes in ("512T", 2 ** 64 - 4096, 2 ** 64 - 1):
    for how in ([], ["--threads"]):
        done = perf("allreduce", "-n", 2, "-b", nbytes, "-e", nbytes, *how, *QUICK)
        check(done.returncode == 1 and re.search("no memory|NOMEM", done.stderr), done)

# The table: heads as of nccl-tests, and as many rows as sizes.
done = perf("allreduce", "-n", 2, "-e", "64", *QUICK)
head = next((line for line in done.stdout.splitlines() if line.startswith("#") and " count " in line), "")
check(head.strip("# ").split() == "size count type redop root time algbw busbw wrong p50 min p99 algo".split(), done.stdout)
lines = [line.split() for line in done.stdout.splitlines() if not line.startswith("#")]
check([line[0] for line in lines] == ["8", "16", "32", "64"] and all(len(line) == 13 for line in lines), done.stdout)

# The page needs nothing else and is well formed where it draws.
done = perf("allreduce", "-n", 2, "-e", "1K", "--html", "page.html", *QUICK)
page = pathlib.Path("page.html").read_text() if done.returncode == 0 else ""
drawings = re.findall(r"<svg.*?</svg>", page, re.S)
check(len(drawings) == 2 and page.count("<tr>") == 9 and "http" not in page and "src=" not in page, done, page[:500])
for drawing in drawings:
    ET.fromstring(drawing)
    check("nan" not in drawing and "inf" not in drawing, drawing)

# A progress line, where standard error is a terminal, and only there.
outer, inner = pty.openpty()
done = perf("allreduce", "-n", 2, "-e", "8", *QUICK, capture_output=False, stdout=subprocess.PIPE, stderr=inner)
os.close(inner)
shown = b""
while True:
    try:
        shown += (got := os.read(outer, 4096))
    except OSError:
        break
    if not got:
        break
check(b"allreduce of 8 bytes" in shown and "\r" not in done.stdout, shown, done)

# Somebody else at work is noticed, loudly.
busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
done = perf("allreduce", "-n", 2, "-b", "1M", "-e", "1M", "--iters", 2000, "--json")
busy.kill()
busy.wait()
check("NOT QUIET" in done.stderr and rows(done)[-1]["machine"]["quiet"] is False, done)

print("\n".join(failures) or "choir perf measures and verifies")
sys.exit(1 if failures else 0)
