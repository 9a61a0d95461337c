#!/usr/bin/env python3
"""find_package_test.py - an outside CMake project finds Choir, shared and static, with a version."""
# timeout: 120
import pathlib
import subprocess

from prefix import EXAMPLE, check, check_example, install, run

PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(outside C)
find_package(Choir %s REQUIRED)
foreach(kind choir choir_shared choir_static)
    add_executable(with_${kind} %s)
    target_link_libraries(with_${kind} PRIVATE Choir::${kind})
endforeach()
"""

prefix = install().rename("moved").resolve()
pathlib.Path("CMakeLists.txt").write_text(PROJECT % ("0.1", EXAMPLE))
run("cmake", "-S", ".", "-B", "out", f"-DCMAKE_PREFIX_PATH={prefix}")
run("cmake", "--build", "out")
for kind, shared in (("choir", True), ("choir_shared", True), ("choir_static", False)):
    program = pathlib.Path(f"out/with_{kind}")
    check_example(program)
    check(("libchoir.so.0" in run("readelf", "-d", program)) == shared, f"{program} shared: {not shared}, expected {shared}")

run("cmake", "-S", ".", "-B", "out-static", f"-DCMAKE_PREFIX_PATH={prefix}", "-DChoir_USE_STATIC=ON")
run("cmake", "--build", "out-static", "--target", "with_choir")
check("libchoir" not in run("readelf", "-d", "out-static/with_choir"), "Choir_USE_STATIC gives the static library")

pathlib.Path("CMakeLists.txt").write_text(PROJECT % ("0.2", EXAMPLE))
refused = subprocess.run(["cmake", "-S", ".", "-B", "out2", f"-DCMAKE_PREFIX_PATH={prefix}"], capture_output=True, text=True)
check(refused.returncode != 0 and "0.2" in refused.stderr, "a version that is not there must be refused")
