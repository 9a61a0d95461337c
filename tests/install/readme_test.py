#!/usr/bin/env python3
"""readme_test.py - README.md shows examples/02_allreduce/allreduce.c as it is, and what it prints is true."""
# timeout: 60
import re

from prefix import EXAMPLE, EXAMPLE_PRINTS, SOURCE, check, check_example, install, run

readme = (SOURCE / "README.md").read_text()
shown = re.findall(r"^```c\n(.*?)^```", readme, re.M | re.S)
code = re.sub(r"^/\*.*?\*/\n", "", EXAMPLE.read_text(), count=1, flags=re.S)
check(shown == [code], "README.md does not show examples/02_allreduce/allreduce.c (without its first comment)")
check(len(code.splitlines()) <= 22, f"the program has {len(code.splitlines())} lines; README promises about 20")
for text in (readme, (SOURCE / "examples/02_allreduce/README.md").read_text()):
    check(EXAMPLE_PRINTS.strip() in text, "the page does not show what the program prints")

prefix = install()
run("cc", EXAMPLE, f"-I{prefix}/include", f"-L{prefix}/lib", f"-Wl,-rpath,{prefix}/lib", "-lchoir", "-o", "allreduce")
check_example("./allreduce")

# Links to files of the tree lead somewhere.
for page in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "CHANGELOG.md"):
    for target in re.findall(r"\]\(([^)#:]+)\)", (SOURCE / page).read_text()):
        check((SOURCE / target).exists(), f"{page} points to {target}, which does not exist")
