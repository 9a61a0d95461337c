#!/usr/bin/env python3
"""choir_command_test.py - the command choir: help, version, info, and manners when called wrongly."""
import json
import os
import pathlib
import re
import subprocess
import sys

SOURCE = pathlib.Path(os.environ["CHOIR_TEST_SOURCE"])
CHOIR = pathlib.Path(os.environ["CHOIR_TEST_BUILD"]) / "bin/choir"
failures = []


def choir(*args, env=None, **options):
    return subprocess.run([CHOIR, *args], capture_output=True, text=True, env={**os.environ, **(env or {})}, **options)


def check(condition, *told):
    if not condition:
        failures.append(" ".join(map(str, told)))


# Called wrongly: exit code 2, one line on standard error, nothing on standard output.
for args in ([], ["bogus"], ["--bogus"], ["info", "--bogus"], ["info", "extra"], ["help", "bogus"], [""]):
    done = choir(*args)
    check(done.returncode == 2 and done.stderr.count("\n") == 1 and done.stdout == "", args, done)

# Help in all its spellings is the same; it lists every command, and each has a page and help of its own.
helps = {choir(*args).stdout for args in (["--help"], ["-h"], ["help"])}
check(len(helps) == 1, "three different helps", helps)
commands = re.findall(r"^CHOIR_COMMAND\((\w+)", (SOURCE / "tools/commands.def").read_text(), re.M)
check(commands, "no command in commands.def")
for command in commands:
    check(re.search(rf"^  {command} ", next(iter(helps)), re.M), command, "is not in choir --help")
    done = choir("help", command)
    check(done.returncode == 0 and done.stdout.startswith(f"usage: choir {command}"), "help", command, done)
    check(done.stdout == choir(command, "--help").stdout, command, "--help is not choir help", command)
    check((SOURCE / f"man/man1/choir-{command}.1").exists(), f"no man page choir-{command}(1)")
    for option in re.findall(r"^  (--\w+)", done.stdout, re.M):
        page = (SOURCE / f"man/man1/choir-{command}.1").read_text().replace("\\-", "-")
        check(option in page, f"choir-{command}(1) does not know {option}")

check(choir("--version").stdout == "choir 0.1.0\n", choir("--version"))

# info as text: a line for each fact, each with something to say.
text = choir("info")
facts = dict(line.split(None, 1) for line in text.stdout.splitlines())
check(text.returncode == 0 and text.stderr == "", text)
for fact in ("version", "build", "system", "cpu", "processors", "kernels", "clock", "engines"):
    check(facts.get(fact, "").strip(), "choir info says nothing on", fact, text.stdout)
check(re.fullmatch(r"\w+ \(.+\)", facts["kernels"]) and re.fullmatch(r"\w+ \(.+\)", facts["clock"]), text.stdout)

# Engines: ours, and others' libraries where the linker would find them.
os.mkdir("lib")
pathlib.Path("lib/libnccl.so.2").touch()
check(facts["engines"].startswith("host"), text.stdout)
done = choir("info", "--json", env={"LD_LIBRARY_PATH": f"/nowhere:{os.getcwd()}/lib"})
check({"name": "nccl", "path": f"{os.getcwd()}/lib/libnccl.so.2"} in json.loads(done.stdout)["installed"], done.stdout)
check(json.loads(done.stdout)["engines"] == ["host"], done.stdout)
done = choir("info", env={"LD_LIBRARY_PATH": f"{os.getcwd()}/lib"})
check(f"nccl ({os.getcwd()}/lib/libnccl.so.2)" in done.stdout and "not used" in done.stdout, done.stdout)
pathlib.Path("mine.so").touch()
done = choir("info", env={"LD_LIBRARY_PATH": f"{os.getcwd()}/lib", "CHOIR_LIBNCCL": f"{os.getcwd()}/mine.so"})
check(f"nccl ({os.getcwd()}/mine.so)" in done.stdout, done.stdout)

# info as JSON: the same facts; strings from the environment are escaped.
odd = 'warn,x="\\\t\x01é'
done = choir("info", "--params", "--json", env={"CHOIR_LOG": odd, "CHOIR_KERNEL": "scalar", "CHOIR_PROCESSORS": "3"})
check(done.stdout.count("\n") == 1, "not one line", done.stdout)
told = json.loads(done.stdout)
check(told["version"] == "0.1.0" and told["kernels"] == "scalar" and told["processors"] == 3, told)
params = {p["name"]: p for p in told["params"]}
listed = re.findall(r'^CH_PARAM\(\w+, "(\w+)"', (SOURCE / "src/base/params.def").read_text(), re.M)
check(list(params) == listed, "params:", list(params), "params.def:", listed)
check(params["CHOIR_LOG"]["value"] == odd, params["CHOIR_LOG"])
check(params["CHOIR_CLOCK"]["value"] is None and params["CHOIR_CLOCK"]["default"] == "auto", params["CHOIR_CLOCK"])
check("params" not in json.loads(choir("info", "--json").stdout), "--json alone lists params")

table = choir("info", "--params", env={"CHOIR_SPIN_US": "7"}).stdout
check("CHOIR_SPIN_US = 7  (default -1)" in table and "CHOIR_CLOCK = auto\n" in table, table)

# A mistyped variable gets one warning, with the name that was meant, and is no failure.
done = choir("info", env={"CHOIR_KERNLE": "scalar"})
check(done.returncode == 0 and done.stderr.count("\n") == 1 and "did you mean CHOIR_KERNEL" in done.stderr, done)

# Standard output that cannot take the text is a failure.
with open("/dev/full", "w") as full:
    done = subprocess.run([CHOIR, "info"], stdout=full, stderr=subprocess.PIPE, text=True)
check(done.returncode == 1 and "standard output" in done.stderr, done)
# Also when it was lost long before the end, when ranks print it, and when there is none: then no file takes its place either.
QUICK = "-n 2 -b 8 -e 16 --iters 3 --json"
for line, reason in ((f"perf allreduce --threads {QUICK} >/dev/full", "not all of it"), (f"perf allreduce {QUICK} >/dev/full", "No space left"),
                     (f"perf allreduce --threads {QUICK} >&-", "not all of it"), (f"perf allreduce {QUICK} >&-", "Bad file descriptor"),
                     (f"perf allreduce {QUICK} <&- >&-", "Bad file descriptor"), ("tune --show >&-", "Bad file descriptor"),
                     ("simulate allreduce --svg drawing >&-", "Bad file descriptor"), ("info >&-", "Bad file descriptor")):
    done = subprocess.run(["sh", "-c", f'exec "$0" {line}', CHOIR], capture_output=True, text=True)
    check(done.returncode == 1 and "standard output" in done.stderr and reason in done.stderr and "Success" not in done.stderr, line, done)
check(pathlib.Path("drawing").read_text().endswith("</svg>\n"), "the text went into the drawing")

print("\n".join(failures) or "choir behaves")
sys.exit(1 if failures else 0)
