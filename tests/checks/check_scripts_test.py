#!/usr/bin/env python3
"""check_scripts_test.py - every check script passes what is right and fails what is wrong.

Each fixture is a tiny tree with one violation; the message must name it.
"""
# timeout: 120
import os
import pathlib
import shutil
import subprocess
import sys

SOURCE = pathlib.Path(os.environ["CHOIR_TEST_SOURCE"])
HERE = pathlib.Path.cwd()
failures = []


def tree(name, files):
    root = HERE / name
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def expect(what, script, args, code, says="", env=None):
    done = subprocess.run([SOURCE / "scripts" / script, *map(str, args)], capture_output=True, text=True,
                          env={**os.environ, **(env or {})})
    output = done.stdout + done.stderr
    if done.returncode != code or says not in output:
        failures.append(f"{script}: {what}: exit code {done.returncode}, expected {code} and \"{says}\"\n{output}")


def compile_library(root, sources):
    """libchoir.so and libchoir.a of the given C files, with the tree's version map."""
    objects = []
    for name, text in sources.items():
        (root / name).write_text(text)
        subprocess.run(["gcc", "-fPIC", "-fvisibility=hidden", "-c", name, "-o", name + ".o"], cwd=root, check=True)
        objects.append(name + ".o")
    subprocess.run(["ar", "rcs", "libchoir.a", *objects], cwd=root, check=True)
    subprocess.run(["gcc", "-shared", "-o", "libchoir.so", "-Wl,--version-script=src/choir.map", *objects],
                   cwd=root, check=True)


def check_layers():
    right = {"src/base/a.h": "", "src/base/a.c": '#include "base/a.h"\n', "src/io/b.c": '#include "base/a.h"\n',
             "src/io/b_check.h": '#include "choir_test.h"\n', "src/io/b_test.c": '#include "io/b_check.h"\n',
             "include/choir/c.h": "#include <stddef.h>\n", "tools/d.c": "#include <choir/c.h>\n"}
    wrong = [  # file, its text, what the message must hold, reason
        ("src/base/up.c", '#include "io/b.h"\n', "base must not know io", "an include that points up"),
        ("src/io/side.c", '#include "kernel/k.h"\n', "io must not know kernel", "a neighbour on the same row"),
        ("src/algo/t.c", '#include "io/b.h"\n', "algo must not know io", "algo sees sched only"),
        ("src/reducer/r.c", '#include "group/g.h"\n', "reducer must not know group", "reducer is written on the public API"),
        ("src/base/short.c", '#include "a.h"\n', "folder/file.h", "an include without its folder"),
        ("src/base/a.c", '#include <stdio.h>\n#include "base/a.h"\n', "first include", "own header not first"),
        ("src/io/b.c", '#include "io/b_check.h"\n', "helper of its tests", "the library includes a test helper"),
        ("src/new/n.c", "", "not in the table", "a folder nobody placed"),
        ("include/choir/p.h", '#include "base/a.h"\n', "public header", "a public header that needs internals"),
        ("tools/d.c", '#include "base/a.h"\n', "public headers", "a tool that looks inside"),
        ("examples/01/e.c", '#include "../../src/base/a.h"\n', "outside its folder", "an example that looks inside"),
    ]
    expect("a right tree", "check-layers", [tree("layers", right)], 0)
    for i, (path, text, says, reason) in enumerate(wrong):
        expect(reason, "check-layers", [tree(f"layers{i}", {**right, path: text})], 1, says)
    expect("an empty tree", "check-layers", [tree("layers-empty", {"x": ""})], 1)


def check_names():
    expect("different names", "check-names", [tree("names", {"a/x.c": "", "b/y.c": "", "b/README.md": "", "README.md": ""})], 0)
    expect("a header and its public half", "check-names", [tree("names-pair", {"include/choir/x.h": "", "src/base/x.h": ""})], 0)
    expect("one name twice", "check-names", [tree("names-bad", {"src/a/x.c": "", "src/b/x.c": ""})], 1, "x.c: src/a/x.c, src/b/x.c")


def check_globals():
    root = tree("globals", {"src/choir.map": "CHOIR_0.1 { local: *; };", "allow": "a.c:known one reason\n",
                            "stale": "a.c:known one reason\na.c:gone another\n", "silent": "a.c:known\n"})
    good = ("int known = 1; static const char *const names[] = { \"x\" };\n"
            "const char *choir_f(int i); const char *choir_f(int i) { return names[i]; }\n")
    compile_library(root, {"a.c": good})
    expect("only what is allowed", "check-globals", [root / "libchoir.a", root / "allow"], 0)
    expect("an entry that is gone", "check-globals", [root / "libchoir.a", root / "stale"], 1, "a.c:gone")
    expect("an entry without a reason", "check-globals", [root / "libchoir.a", root / "silent"], 1, "no reason")
    for text in ("int sneaky;", "_Thread_local int sneaky = 3;", "static int sneaky; int *choir_g(void) { return &sneaky; }",
                 "int *choir_g(void) { static int sneaky; return &sneaky; }"):
        compile_library(root, {"a.c": good + text})
        expect(text, "check-globals", [root / "libchoir.a", root / "allow"], 1, "a.c:sneaky")


API = {
    "src/choir.map": "CHOIR_0.1 {\n global:\n  choir_a;\n  choir_b;\n local:\n  *;\n};\n",
    "include/choir/choir.h": "#include <choir/a.h>\n",
    "include/choir/a.h": "#include <choir/x.def>\n#define CHOIR_API\n/* CHOIR_API int choir_not(void); */\n"
                         "CHOIR_API int choir_a(void);\nCHOIR_API int choir_b(int x,\n   int y);\n",
    "include/choir/x.def": "",
    "man/man3/choir_a.3": ".TH choir_a 3\n.SH NAME\nchoir_a, choir_b \\- do it\n.SH SYNOPSIS\n",
}
BODY = '#define V __attribute__((visibility("default")))\nV int choir_a(void) { return 1; }\nV int choir_b(int x, int y) { return x + y; }\n'


def check_api():
    wrong = [  # changed file, its text, what the message must hold
        ("include/choir/a.h", API["include/choir/a.h"] + "CHOIR_API int choir_c(void);\n", "choir_c: in the headers, not in src/choir.map"),
        ("include/choir/a.h", API["include/choir/a.h"].replace("CHOIR_API int choir_b", "int choir_b"), "choir_b: in src/choir.map, not in the headers"),
        ("man/man3/choir_a.3", API["man/man3/choir_a.3"].replace(", choir_b", ""), "choir_b: in src/choir.map, not in the man3 pages"),
        ("man/man3/choir_z.3", ".SH NAME\nchoir_z \\- no such call\n", "choir_z: in the man3 pages, not in src/choir.map"),
        ("man/man3/choir_y.3", ".SH NAME\nchoir_a \\- misnamed\n", "does not list choir_y"),
        ("include/choir/lost.h", "", "lost.h: not reachable"),
    ]
    root = tree("api", API)
    compile_library(root, {"a.c": BODY})
    expect("all agree", "check-api", [root, root], 0)
    for i, (path, text, says) in enumerate(wrong):
        root = tree(f"api{i}", {**API, path: text})
        compile_library(root, {"a.c": BODY})
        expect(says, "check-api", [root, root], 1, says)
    root = tree("api-static", API)
    compile_library(root, {"a.c": BODY + "int helper(void) { return 2; }\n"})
    expect("an unprefixed helper", "check-api", [root, root], 1, "helper: a global of libchoir.a")
    root = tree("api-gone", API)
    compile_library(root, {"a.c": BODY.replace("V int choir_b", "int choir_b")})
    expect("declared but not exported", "check-api", [root, root], 1, "choir_b: in src/choir.map, not in libchoir.so")


def check_format():
    style = (SOURCE / ".clang-format").read_text()
    good = tree("format", {".clang-format": style, "a.c": "int a(void)\n{\n    return 1;\n}\n", "x.def": "X( 1,2 )\n"})
    bad = tree("format-bad", {".clang-format": style, "a.c": "int a(void) { return 1; }\n"})
    if subprocess.run([SOURCE / "scripts/format", "--check"], capture_output=True,
                      env={**os.environ, "CHOIR_FORMAT_ROOT": str(good)}).returncode == 77:
        return  # said in `make check` already
    expect("well laid out", "check-format", [], 0, env={"CHOIR_FORMAT_ROOT": str(good)})
    expect("badly laid out", "check-format", [], 123, "a.c:1", env={"CHOIR_FORMAT_ROOT": str(bad)})


def check_man():
    if not shutil.which("mandoc"):
        return  # said in `make check` already
    page = '.TH x 1 "2026-01-01" "Choir" "Manual"\n.SH NAME\nx \\- it\n'
    expect("a good page", "check-man", [tree("man", {"x.1": page})], 0)
    expect("an unknown macro", "check-man", [tree("man-bad", {"x.1": page + ".ZZ foo\n"})], 3, "x.1")
    expect("no page at all", "check-man", [tree("man-none", {"x.txt": ""})], 1, "no page")


for check in (check_layers, check_names, check_globals, check_api, check_format, check_man):
    check()
print("\n".join(failures) or "all check scripts can fail")
sys.exit(1 if failures else 0)
