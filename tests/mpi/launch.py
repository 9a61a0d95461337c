"""launch.py - start tests/mpi/mpi_exchange.c under real launchers, as the scripts beside this need it."""
import os
import pathlib
import shutil
import subprocess
import sys

BUILD = pathlib.Path(os.environ["CHOIR_TEST_BUILD"])
SOURCE = pathlib.Path(os.environ["CHOIR_TEST_SOURCE"])
PLAIN = BUILD / "bin/tests/mpi_exchange"

# Open MPI refuses root and more ranks than processors unless told, by options or by these.
os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                  OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_btl_base_warn_component_unused="0",
                  OMPI_MCA_btl_vader_single_copy_mechanism="none")
# As if no launcher were around us.
for name in list(os.environ):
    if name.startswith(("PMI_", "PMIX_", "OMPI_COMM_", "MPI_LOCAL", "SLURM_")):
        del os.environ[name]


def skip(reason):
    print(f"skip: {reason}")
    sys.exit(77)


def need(*tools):
    for tool in tools:
        if shutil.which(tool) is None:
            skip(f"{tool} is not installed")


def compile_with(mpicc, name):
    """mpi_exchange that calls that MPI too."""
    if subprocess.run([mpicc, "-include", "mpi.h", "-E", "-x", "c", os.devnull], capture_output=True).returncode != 0:
        skip(f"{mpicc} finds no mpi.h: the MPI's development package is not installed")
    subprocess.run([mpicc, "-std=gnu11", "-D_GNU_SOURCE", "-DUSE_MPI", "-I", SOURCE / "src", "-I", SOURCE / "include",
                    SOURCE / "tests/mpi/mpi_exchange.c", "-o", name, BUILD / "lib/libchoir.a", "-lpthread"], check=True)
    return pathlib.Path(name).resolve()


def launch(launcher, count, program, *words, seconds=60):
    """The exit code and the lines of output, sorted."""
    command = [launcher, "-n", str(count), str(program), *words]
    print("+", *command, flush=True)
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=seconds)
    return done.returncode, sorted(done.stdout.splitlines())


def expect(launcher, count, program, *words, lines, code=0):
    got = launch(launcher, count, program, *words)
    if got != (code, sorted(lines)):
        print(f"exit code {got[0]}, expected {code}; output:\n  " + "\n  ".join(got[1]))
        print("expected:\n  " + "\n  ".join(sorted(lines)))
        sys.exit(1)


def shared(kind, count, number=0):
    return [f"shared {number} by {kind}, rank {rank} of {count}" for rank in range(count)]


def check_all(launcher, mpicc, kind):
    """What holds under every launcher."""
    for count in (1, 2, 4, 8):
        expect(launcher, count, PLAIN, "share", lines=shared(kind, count))
    # Groups are formed again and again; a rank may end before the others without being taken for crashed.
    expect(launcher, 2, PLAIN, "share", "share", "share", "stagger",
           lines=[line for n in range(3) for line in shared(kind, 2, n)])
    both = compile_with(mpicc, "with_mpi")
    twice = shared(kind, 2) + shared(kind, 2, 1)
    use = ["mpi-init", "mpi-sum", "mpi-finalize"]
    sums = ["sum 2"] * 2
    expect(launcher, 2, both, "share", *use, "stagger", lines=shared(kind, 2) + sums)
    expect(launcher, 2, both, "mpi-init", "share", "mpi-sum", "share", "mpi-finalize", lines=twice + sums)
    expect(launcher, 2, both, "share", "mpi-init", "share", "mpi-sum", "mpi-finalize", "stagger", lines=twice + sums)
    return both


def check_lonely(launcher, where):
    """A rank that does not come: the others' error is in time, says where, and closes the door."""
    code, lines = launch(launcher, 3, PLAIN, "lonely")
    text = "\n".join(lines)
    good = (code == 0 and text.count("absent") == 1 and text.count("lonely: CHOIR_ERR_TIMEOUT: share test through the launcher") == 2
            and text.count(f"waiting for all ranks to meet at the launcher's {where}") == 2
            and text.count("again: CHOIR_ERR_STATE") == 2)
    if not good:
        print(f"exit code {code}; output:\n{text}")
        sys.exit(1)
