#!/usr/bin/env python3
"""completion_test.py - what bash offers after `choir`, as a shell would ask for it."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

SOURCE = pathlib.Path(os.environ["CHOIR_TEST_SOURCE"])
CHOIR = pathlib.Path(os.environ["CHOIR_TEST_BUILD"]) / "bin/choir"
failures = []
if shutil.which("bash") is None:
    print("skip: bash is not installed")
    sys.exit(77)


def complete(*words):
    """The candidates for the last of these words; the first is the command."""
    script = ('source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
              '_choir "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"; printf "%s\\n" "${COMPREPLY[@]}"')
    done = subprocess.run(["bash", "--norc", "-c", script, "bash", SOURCE / "tools/completion/choir.bash", CHOIR, *words],
                          capture_output=True, text=True)
    if done.returncode != 0 or done.stderr:
        failures.append(f"{words}: {done}")
    return set(done.stdout.split())


def check(condition, *told):
    if not condition:
        failures.append(" ".join(map(str, told)))


def is_registered():
    script = 'source "$1"; complete -p choir'
    done = subprocess.run(["bash", "--norc", "-c", script, "bash", SOURCE / "tools/completion/choir.bash"], capture_output=True, text=True)
    return done.returncode == 0 and "-F _choir choir" in done.stdout


check(is_registered(), "choir is not registered")
commands = set(re.findall(r"^CHOIR_COMMAND\((\w+)", (SOURCE / "tools/commands.def").read_text(), re.M))
check(complete("") == commands | {"help", "--help", "--version"}, complete(""))
check(complete("ru") == {"run"}, complete("ru"))
check(complete("help", "") == commands | {"help"}, complete("help", ""))

# Every option that has a help text, and none that is between launchers.
listed = re.findall(r'^RUN_OPTION\(\w+, "([a-z-]+)", .*\)$', (SOURCE / "tools/run_options.def").read_text().replace("\n           ", " "), re.M)
shown = {f"--{name}" for name in listed} - {"--controlled"}
check(complete("run", "--") == shown and len(shown) > 15, "options:", complete("run", "--") ^ shown)
check(complete("run", "-n", "4", "--no-p") == {"--no-prefix"}, complete("run", "-n", "4", "--no-p"))
check(complete("run", "--bind", "") == {"core", "none"}, complete("run", "--bind", ""))
check(complete("run", "--color", "a") == {"auto", "always"}, complete("run", "--color", "a"))
check(complete("run", "--timeout", "") == set(), "a number cannot be completed")
check(complete("info", "--") >= {"--json", "--params"}, complete("info", "--"))

# Operations where one is asked for, and nothing else: before and behind options, whose values are not taken for it.
COLLECTIVES = set("allreduce broadcast reduce allgather reduce_scatter gather scatter alltoall barrier".split())
for command, operations in (("perf", COLLECTIVES - {"reduce_scatter"} | {"reducescatter", "sendrecv"}), ("simulate", COLLECTIVES), ("explain", COLLECTIVES)):
    check(complete(command, "") == operations, command, complete(command, ""))
    check(complete(command, "allr") == {"allreduce"}, command, complete(command, "allr"))
    check(complete(command, "allreduce", "") == set(), command, "has one operation, not also", complete(command, "allreduce", ""))
    option = "-n" if command == "perf" else "--ranks"
    check(complete(command, option, "2", "allr") == {"allreduce"}, command, complete(command, option, "2", "allr"))
    check(complete(command, "--type", "=", "f64", "allr") == {"allreduce"}, command, complete(command, "--type", "=", "f64", "allr"))
    check(complete(command, option, "") == set(), command, "a number cannot be completed")
    check(complete(command, "allreduce", "--ty") == {"--type"}, command, complete(command, "allreduce", "--ty"))
    told = subprocess.run([CHOIR, command, "--help"], capture_output=True, text=True).stdout
    check(complete(command, "-") == set(re.findall(r"^  (--?[a-z-]+)", told, re.M)) > {"--help"}, command, complete(command, "-"))
check(complete("perf", "--bind", "") == {"core", "none"}, complete("perf", "--bind", ""))
check(complete("tune", "--") == {"--output", "--show", "--help"} and complete("tune", "") == set(), complete("tune", "--"), complete("tune", ""))
pathlib.Path("page.html").touch()
for words in (("perf", "allreduce", "--html", "pag"), ("simulate", "--svg", "pag"), ("tune", "--output", "pag"), ("trace", "pag"), ("trace", "--json", "x", "pag"),
              ("store", "get", "pag")):
    check(complete(*words) == {"page.html"}, words, complete(*words))
check({"get", "set", "compare-set"} < complete("store", ""), complete("store", ""))

# What comes after the options is another command's line.
os.mkdir("folder")
pathlib.Path("folder-file").touch()
check("bash" in complete("run", "-n", "2", "bas"), complete("run", "-n", "2", "bas"))
check("bash" in complete("run", "--", "bas"), complete("run", "--", "bas"))
check(complete("run", "--grace", "3", "cat", "fold") == {"folder", "folder-file"}, complete("run", "--grace", "3", "cat", "fold"))
check(complete("run", "cat", "--no-p") == set(), "options of choir run are not the program's")
check(complete("run", "--output", "fold") == {"folder"}, complete("run", "--output", "fold"))

print("\n".join(failures) or "bash completes")
sys.exit(1 if failures else 0)
