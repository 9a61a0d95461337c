#!/usr/bin/env python3
"""openmpi_test.py - exchanges through PMIx under Open MPI's mpirun, alone and beside MPI in the same process."""
# timeout: 150
from launch import PLAIN, check_all, check_lonely, expect, launch, need, shared

need("mpirun.openmpi", "mpicc.openmpi")
both = check_all("mpirun.openmpi", "mpicc.openmpi", "pmix")
# After MPI has ended, too: PMIx can be begun again by us, if not by Open MPI.
expect("mpirun.openmpi", 2, both, "mpi-init", "mpi-sum", "mpi-finalize", "share", lines=["sum 2"] * 2 + shared("pmix", 2))
check_lonely("mpirun.openmpi", "fence")

# A rank that fails is the launcher's business, as ever.
code, _ = launch("mpirun.openmpi", 2, PLAIN, "share", "exit=3")
assert code == 3, code
print("ok")
