#!/usr/bin/env python3
"""headers_c_test.py - every installed header compiles alone as C11, twice over, without a warning."""
# timeout: 120
import shutil

from prefix import check, install, run

prefix = install()
headers = sorted(p.name for p in (prefix / "include/choir").glob("*.h"))
check("choir.h" in headers and len(headers) > 5, f"installed headers: {headers}")
for compiler in filter(shutil.which, ("gcc", "clang")):
    for header in headers:
        text = f"#include <choir/{header}>\n#include <choir/{header}>\nint main(void) {{ return 0; }}\n"
        run(compiler, "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Wundef", "-Wstrict-prototypes", "-Werror",
            "-fsyntax-only", f"-I{prefix}/include", "-xc", "-", input=text)
