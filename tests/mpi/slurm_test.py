#!/usr/bin/env python3
"""slurm_test.py - exchanges under srun, PMI and PMIx, in a private one-host cluster that this script starts."""
# timeout: 120
import os
import pathlib
import socket
import subprocess
import sys
import time

from launch import PLAIN, need, shared, skip

CONF = """\
ClusterName=choir
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ctld}
SlurmdPort={slurmd}
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/spool
SlurmctldPidFile={dir}/slurmctld.pid
SlurmdPidFile={dir}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/linear
MpiDefault=none
ReturnToService=2
NodeName=localhost NodeAddr=127.0.0.1 CPUs=1 State=UNKNOWN
PartitionName=all Nodes=localhost Default=YES MaxTime=INFINITE State=UP
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def show_logs():
    for log in pathlib.Path(".").glob("*.log"):
        print(f"{log}:\n  " + "\n  ".join(log.read_text(errors="replace").splitlines()[-15:]))


def start(*command):
    with open(command[0] + ".log", "w") as log:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def wait_for_cluster(daemons):
    """Slurm that does not start here (no privileges, no cgroups) is a reason to skip, not a failure of ours."""
    until = time.monotonic() + 40
    while time.monotonic() < until and all(d.poll() is None for d in daemons):
        state = subprocess.run(["sinfo", "--noheader", "-o", "%T"], capture_output=True, text=True).stdout.strip()
        if state == "idle":
            return
        time.sleep(0.1)
    show_logs()
    skip("no Slurm cluster could be started here")


def srun(kind, count, *words):
    command = ["srun", f"--mpi={kind}", "-n", str(count), "--quiet", "--overcommit", str(PLAIN), *words]
    print("+", *command, flush=True)
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=60)
    return done.returncode, sorted(done.stdout.splitlines())


def check(kind, ours):
    for count in (1, 2, 4):
        got = srun(kind, count, "share", "share", "stagger")
        want = (0, sorted(shared(ours, count) + shared(ours, count, 1)))
        if got != want:
            print(f"got {got}\nexpected {want}")
            show_logs()
            sys.exit(1)


need("slurmctld", "slurmd", "srun", "sinfo")
if os.getuid() != 0:
    skip("a private Slurm cluster needs root")
here = pathlib.Path.cwd()
for name in ("state", "spool"):
    (here / name).mkdir()
(here / "slurm.conf").write_text(CONF.format(ctld=free_port(), slurmd=free_port(), dir=here))
os.environ["SLURM_CONF"] = str(here / "slurm.conf")
daemons = []
try:
    daemons.append(start("slurmctld", "-D"))
    daemons.append(start("slurmd", "-D", "-N", "localhost"))
    wait_for_cluster(daemons)
    check("pmi2", "pmi1")
    kinds = subprocess.run(["srun", "--mpi=list"], capture_output=True, text=True)
    if "pmix" in kinds.stdout + kinds.stderr:
        check("pmix", "pmix")
finally:
    for daemon in reversed(daemons):
        daemon.terminate()
        daemon.wait(20)
print("ok")
