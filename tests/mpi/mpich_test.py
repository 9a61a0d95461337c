#!/usr/bin/env python3
"""mpich_test.py - exchanges through PMI-1 under MPICH's mpiexec, alone and beside MPI in the same process."""
# timeout: 150
from launch import PLAIN, check_all, check_lonely, launch, need

need("mpiexec.hydra", "mpicc.mpich")
both = check_all("mpiexec.hydra", "mpicc.mpich", "pmi1")
check_lonely("mpiexec.hydra", "barrier")

# Once MPI has ended its socket to the launcher is closed: an error that says so.
code, lines = launch("mpiexec.hydra", 1, both, "mpi-init", "mpi-finalize", "share")
assert code == 1 and any("MPI_Finalize closes it" in line for line in lines), (code, lines)

code, _ = launch("mpiexec.hydra", 2, PLAIN, "share", "exit=3")
assert code == 3, code
print("ok")
