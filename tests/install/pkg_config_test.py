#!/usr/bin/env python3
"""pkg_config_test.py - an outside program is built by pkg-config, shared and static, also from a moved tree."""
# timeout: 60
from prefix import EXAMPLE, check, check_example, install, need, run


def flags(prefix, *options):
    env = {"PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig"), "PATH": "/usr/local/bin:/usr/bin:/bin"}
    return run("pkg-config", *options, "choir", env=env).split()


need("pkg-config")
prefix = install()
moved = prefix.rename("moved-elsewhere")
moved = moved.resolve()

check(flags(moved, "--modversion") == ["0.1.0"], "version of choir.pc")
run("cc", "-std=c11", "-Wall", "-Werror", EXAMPLE, "-o", "shared", *flags(moved, "--cflags", "--libs"))
check_example("./shared", {"LD_LIBRARY_PATH": str(moved / "lib")})
check("libchoir.so.0" in run("readelf", "-d", "shared"), "the shared program needs libchoir.so.0")

run("cc", "-std=c11", "-static", EXAMPLE, "-o", "static", *flags(moved, "--static", "--cflags", "--libs"))
check_example("./static")
check("NEEDED" not in run("readelf", "-d", "static"), "the static program needs no shared library")
