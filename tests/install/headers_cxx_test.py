#!/usr/bin/env python3
"""headers_cxx_test.py - every installed header compiles alone as C++17, and a C++ program links."""
# timeout: 120
import shutil

from prefix import check, install, run, skip

PROGRAM = """
#include <choir/choir.h>
#include <cstdio>
int main()
{
    const float a = 1, b = 3;
    const void *srcs[] = {&a, &b};
    float out = 0;
    choir_reduce_local_opts opts = {};
    opts.size = sizeof(opts);
    opts.op = CHOIR_AVG;
    if (choir_reduce_local(&out, srcs, 2, 1, CHOIR_F32, &opts) != CHOIR_OK)
        std::puts(choir_last_error());
    std::printf("%g\\n", double(out));
}
"""

compilers = [c for c in ("g++", "clang++") if shutil.which(c)]
if not compilers:
    skip("no C++ compiler is installed")
prefix = install()
for compiler in compilers:
    for header in sorted(p.name for p in (prefix / "include/choir").glob("*.h")):
        run(compiler, "-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Wundef", "-Werror", "-fsyntax-only",
            f"-I{prefix}/include", "-xc++", "-", input=f"#include <choir/{header}>\n#include <choir/{header}>\n")
    run(compiler, "-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{prefix}/include", "-xc++", "-", "-o", compiler,
        f"-L{prefix}/lib", f"-Wl,-rpath,{prefix}/lib", "-lchoir", input=PROGRAM)
    check(run(f"./{compiler}") == "2\n", f"the program built by {compiler} prints 2")
