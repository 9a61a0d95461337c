#!/usr/bin/env python3
"""tune_command_test.py - choir tune writes a machine file that the others read; choir perf --explain-cost holds the model to the clock."""
# timeout: 240
import json
import os
import pathlib
import re
import subprocess
import sys

CHOIR = pathlib.Path(os.environ["CHOIR_TEST_BUILD"]) / "bin/choir"
RANK_VARIABLES = ("CHOIR_RANK", "RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "CHOIR_ALGO")
ENV = {**{k: v for k, v in os.environ.items() if k not in RANK_VARIABLES}, "XDG_CONFIG_HOME": str(pathlib.Path("config").resolve())}
failures = []


def choir(*args, env=ENV):
    return subprocess.run([CHOIR, *map(str, args)], capture_output=True, text=True, env=env)


def check(condition, *told):
    if not condition:
        failures.append(" ".join(map(str, told)))


for args, word in ((["--bogus"], "--bogus"), (["--output"], "needs a value"), (["--output="], "needs a value"), (["--show=1"], "--show=1")):
    done = choir("tune", *args)
    check(done.returncode == 2 and done.stderr.count("\n") == 1 and not done.stdout and word in done.stderr, args, done)
done = choir("tune", env={k: v for k, v in ENV.items() if k not in ("HOME", "XDG_CONFIG_HOME")})
check(done.returncode == 2 and "--output" in done.stderr, done)

done = choir("run", "-n", 3, "--no-prefix", CHOIR, "tune", "--show")
check(done.returncode == 2 and "3 ranks" in done.stderr and not done.stdout, done)

# Without a file the model has figures of no machine in particular, and that is said once.
done = choir("perf", "allreduce", "-n", 2, "-b", "64K", "-e", "64K", "--iters", 5, "--explain-cost", "--json")
check(done.returncode == 0 and done.stderr.count("choir tune") == 1 and json.loads(done.stdout)["model_us"] > 0, done)

# Tuned, the file has the figures, all of them sane, and is where others look.
done = choir("tune")
found = list(pathlib.Path("config/choir").glob("*.machine"))
check(done.returncode == 0 and len(found) == 1 and str(found[0]) in done.stdout and "all-reduce" in done.stdout, done, found)
lines = [line.split("#")[0].split() for line in found[0].read_text().splitlines()] if found else []
figures = {line[0]: line[1:] for line in lines if line}
points = [list(map(float, line[1:])) for line in lines if line and line[0] == "point"]
check(0 < float(figures["wait_us"][0]) < 1000 and 0 <= float(figures["call_us"][0]) < 1000 and figures["ranks_per_host"] == ["0"], figures)
check(len(points) > 10 and points[0][0] <= 4096 and points[-1][0] >= 16 << 20 and all(p[1] > 0 and p[2] > 0 for p in points), points)
done = choir("simulate", "allreduce", "--ranks", 4, "--machine", found[0])
check(done.returncode == 0 and "two-shot" in done.stdout, done)

# How near the model is cannot be promised on a busy machine; that it is of the right order can.
done = choir("perf", "allreduce", "-n", 2, "-b", "4K", "-e", "4M", "-f", 4, "--explain-cost", "--json")
rows = [json.loads(line) for line in done.stdout.splitlines()]
check(done.returncode == 0 and len(rows) == 6 and "choir tune" not in done.stderr, done)
for row in rows:
    check(row["fresh"] is True and 0.02 < row["model_us"] / row["p50_us"] < 50, row)
    check(abs(100 * (row["model_us"] / row["p50_us"] - 1) - row["model_off_percent"]) < 1, row)
done = choir("perf", "allreduce", "-n", 2, "-b", "4K", "-e", "4K", "--explain-cost", "--json", "--html", "page.html")
row, page = json.loads(done.stdout), pathlib.Path("page.html").read_text()
check("<th>model, us<th>off" in page and f"<td>{row['model_us']:.2f}<td>{row['model_off_percent']:+.0f} %" in page, row, page[-500:])
done = choir("perf", "sendrecv", "-n", 2, "-e", 8, "--iters", 5, "--explain-cost")
check(done.returncode == 0 and " - " in done.stdout.splitlines()[-2], done)
done = choir("perf", "allreduce", "-n", 2, "-e", 8, "--explain-cost", "--machine", "nowhere")
check(done.returncode == 1 and "nowhere" in done.stderr, done)

# The library chooses by the figures: with waits that cost much it takes one shot where it would take two, and is right all the same.
pathlib.Path("slow").write_text("ranks_per_host 0\nwait_us 50\n")
for machine, algo in (("slow", "one-shot"), ("none", "two-shot")):
    env = {**ENV, "CHOIR_MACHINE": machine}
    done = choir("perf", "allreduce", "-n", 2, "-b", "128K", "-e", "128K", "--iters", 5, "--json", env=env)
    row = json.loads(done.stdout) if done.returncode == 0 else {}
    check(row.get("algo") == algo and row["wrong"] == 0, machine, done)
# Ranks with different figures do without, and say so.
script = '[ $CHOIR_RANK = 1 ] && CHOIR_MACHINE=none; export CHOIR_MACHINE; exec "$0" perf allreduce -b 128K -e 128K --iters 5 --json'
done = subprocess.run([CHOIR, "run", "-n", "2", "--no-prefix", "sh", "-c", script, CHOIR], capture_output=True, text=True,
                      env={**ENV, "CHOIR_MACHINE": "slow"})
check(done.returncode == 0 and "other measured figures" in done.stderr and json.loads(done.stdout)["wrong"] == 0, done)
# One that cannot be understood is warned of, and nothing else.
pathlib.Path("broken").write_text("wait_us much\n")
done = choir("perf", "allreduce", "-n", 2, "-e", 8, "--iters", 5, env={**ENV, "CHOIR_MACHINE": "broken"})
check(done.returncode == 0 and "broken" in done.stderr and "line 1" in done.stderr, done)

# Somebody else at work is noticed, loudly, and noted.
check(re.search(r"^# measured at load \d+\.\d+; meanwhile others kept \d", found[0].read_text(), re.M), found[0].read_text())
busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
done = choir("tune", "--output=disturbed")
busy.kill()
busy.wait()
check(done.returncode == 0 and "choir tune: *** NOT QUIET" in done.stderr and "NOT QUIET" in pathlib.Path("disturbed").read_text(), done)
check(choir("simulate", "allreduce", "--machine", "disturbed").returncode == 0, "a noted file is no machine file any more")

# A place that cannot be written to is told.
done = choir("tune", "--output", "/proc/none/x")
check(done.returncode == 1 and "/proc/none/x" in done.stderr, done)
os.mkdir("folder")
for place in ("folder", "folder/", "new/"):
    done = choir("tune", "--output", place)
    check(done.returncode == 1 and done.stderr == f"choir tune: {place}: Is a directory\n" and os.listdir("folder") == [], place, done)
# Links stay and lead to the file; what is no file is written to and stays what it is.
for link, target in (("link", "target"), ("dangling", "not-yet")):
    os.symlink(target, link)
pathlib.Path("target").write_text("before\n")
for link, target in (("link", "target"), ("dangling", "not-yet")):
    done = choir("tune", "--output", link)
    check(done.returncode == 0 and os.readlink(link) == target and "wait_us" in pathlib.Path(target).read_text(), link, done)
# So is what can have no draft beside it, as its name is as long as a name may be.
long = pathlib.Path("x" * 255)
long.write_text("before\n")
done = choir("tune", "--output", long)
check(done.returncode == 0 and "wait_us" in long.read_text(), done)
os.mkfifo("pipe")
tune = subprocess.Popen([CHOIR, "tune", "--output", "pipe"], stdout=subprocess.DEVNULL, env=ENV)
told = pathlib.Path("pipe").read_text()
check(tune.wait() == 0 and "wait_us" in told and pathlib.Path("pipe").is_fifo(), told)

print("\n".join(failures) or "choir tune measures")
sys.exit(1 if failures else 0)
