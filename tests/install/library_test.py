#!/usr/bin/env python3
"""library_test.py - the installed library and command: SONAME, versioned symbols, hardening, size, man pages."""
# timeout: 60
import os
import re

from prefix import check, install, run

SIZE_LIMIT = 1024 * 1024  # of the stripped shared library; raise it knowingly


def dynamic(path):
    return run("readelf", "-dW", path)


def check_hardened(path):
    check("GNU_RELRO" in run("readelf", "-lW", path), f"{path.name}: no RELRO")
    check(re.search(r"BIND_NOW|\bNOW\b", dynamic(path)), f"{path.name}: symbols are bound late")
    check(re.search(r"GNU_STACK.* RW ", run("readelf", "-lW", path)), f"{path.name}: its stack is executable")
    undefined = run("nm", "-D", "--undefined-only", path)
    check("__stack_chk_fail" in undefined, f"{path.name}: no stack protector")
    check(re.search(r"__\w+_chk\b", undefined.replace("__stack_chk_fail", "")), f"{path.name}: no FORTIFY")


prefix = install()
library = prefix / "lib/libchoir.so.0.1.0"
command = prefix / "bin/choir"

check("Library soname: [libchoir.so.0]" in dynamic(library), "SONAME is not libchoir.so.0")
for link in ("libchoir.so", "libchoir.so.0"):
    check((prefix / "lib" / link).resolve() == library, f"{link} does not lead to {library.name}")

symbols = [line.split()[-1] for line in run("nm", "-D", "--defined-only", "--with-symbol-versions", library).splitlines()]
calls = [s for s in symbols if s != "CHOIR_0.1"]
check(len(calls) > 10, f"few symbols: {calls}")
for symbol in calls:
    check(re.fullmatch(r"choir_\w+@@CHOIR_0\.1", symbol), f"exported: {symbol}")

check_hardened(library)
check_hardened(command)
check(re.search(r"FLAGS_1.*\bPIE\b", dynamic(command)), "the command is not position independent")
for name in re.findall(r"NEEDED.*\[(.*)\]", dynamic(library)):
    check(re.match(r"(libc|libm|ld-linux-.*)\.so", name), f"the library needs {name}")

run("strip", "-o", "stripped.so", library)
size = os.stat("stripped.so").st_size
check(size < SIZE_LIMIT, f"the stripped library has {size} bytes, {SIZE_LIMIT} are allowed")

for call in calls:
    page = prefix / "share/man/man3" / (call.split("@")[0] + ".3")
    check(page.exists(), f"no man page {page.name}")
    if link := re.match(r"\.so (\S+)", page.read_text()):
        check((prefix / "share/man" / link.group(1)).exists(), f"{page.name} leads to nothing")
for page in ("man1/choir.1", "man1/choir-info.1", "man7/choir.7", "man7/choir_params.7", "man7/choir_status.7"):
    check((prefix / "share/man" / page).exists(), f"no man page {page}")
check(run(command, "--version") == "choir 0.1.0\n", "choir --version")
