"""contenders.py - start the contenders of bench/compare, and have them take turns. The protocol: contender.h."""
import collections
import os
import pathlib
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

MISSING = {  # who may be missing, and how to get it
    "openmpi": "install openmpi-bin and libopenmpi-dev (Debian), then make",
    "mpich": "install mpich and libmpich-dev (Debian), then make",
    "gloo": "install libgloo-dev and g++ (Debian), then make",
}
NAMES = ["choir", "before", "openmpi", "mpich", "gloo", "limit"]
START_SECONDS, BLOCK_SECONDS = 60, 120  # patience
SLOWEST_ROUND_US = 3e6  # a contender that takes longer is left out of that size


def warm_rounds(nbytes, rounds):
    """The caches are full of the others' buffers when a turn begins. What does not fit a cache has nothing to wait for, and a round that takes
    as long as several turns (see prepare()) is not long because of them."""
    if rounds == 1:
        return 1
    return 1 + rounds // 10 + (4 if nbytes < 16 << 20 else 0)


class Trouble(Exception):
    pass


# Are inputs rewritten before every round, and is the barrier that a round starts with part of its time?
Manner = collections.namedtuple("Manner", "fresh whole")


def peers_folder(build):
    return pathlib.Path(build).resolve() / "bin/bench/peers"


def available(build):
    return [name for name in NAMES if (peers_folder(build) / name).exists()]


def spread(values):
    values = sorted(values)
    tenth = len(values) // 10
    return {name: float(f"{v:.5g}") for name, v in (("p10", values[tenth]), ("p50", statistics.median(values)), ("p90", values[-1 - tenth]))}


# --- the machine ---------------------------------------------------------------------------------------

def cpu_model():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("model name", "Model")):
            return line.split(":", 1)[1].strip()
    return "unknown"


def processors():
    return len(os.sched_getaffinity(0))


def cores():
    """Those that our processors are hardware threads of."""
    try:
        return len({pathlib.Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text() for cpu in os.sched_getaffinity(0)})
    except OSError:
        return processors()


def family_ticks():
    """CPU time of this process and of all that descend from it."""
    parent, ticks = {}, {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = pathlib.Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            parent[int(entry)], ticks[int(entry)] = int(fields[1]), int(fields[11]) + int(fields[12])
    total = 0
    for pid in parent:
        above = pid
        while above in parent and above != os.getpid():
            above = parent[above]
        if above == os.getpid():
            total += ticks[pid]
    return total


def machine_ticks():
    of = [int(n) for n in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    busy = of[0] + of[1] + of[2] + of[5] + of[6]
    return busy, of[7], busy + of[7] + of[3] + of[4]


def distance(build):
    """ns that a cache line takes from one processor to another and back now; None if there are not two, or no program to tell."""
    program = pathlib.Path(build) / "bin/bench/distance"
    if processors() < 2 or not program.exists():
        return None
    said = subprocess.run([program], capture_output=True, text=True, check=False).stdout
    return int(said) if said.strip().isdigit() else None


class Watch:
    """What else the machine does from now on."""

    def __init__(self, build):
        self.build = build
        self.load = os.getloadavg()[0]
        self.own, self.before = family_ticks(), machine_ticks()

    def facts(self):
        busy, steal, total = (now - then for now, then in zip(machine_ticks(), self.before))
        others = max(0, busy - (family_ticks() - self.own))
        online = os.cpu_count() or 1
        line = distance(self.build)
        facts = {"cpu": cpu_model(), "processors": processors(), "load": self.load,
                 "steal_percent": 100 * steal / max(total, 1), "others_busy": others / max(total, 1) * online, "line_ns": line}
        facts = {name: round(v, 2) if isinstance(v, float) else v for name, v in facts.items()}
        # A few ticks are blur.
        facts["quiet"] = (others < 5 or facts["others_busy"] < 0.1) and (steal < 5 or facts["steal_percent"] < 1)
        return facts


# --- one contender ---------------------------------------------------------------------------------------

def commands(name, build, nranks, folder, how):
    """What to start: one command, or one for each rank."""
    program = str(peers_folder(build) / name)
    crowded = nranks > processors()
    if name in ("choir", "before"):
        return [[str(pathlib.Path(build).resolve() / "bin/choir"), "run", "-n", str(nranks), "--no-prefix", "--bind", "none", "--",
                 program, folder, how]]
    if name == "openmpi":
        threads = not crowded and nranks > cores()  # as many as there are cores is all that it starts otherwise
        return [["mpirun.openmpi", *(["--allow-run-as-root"] if os.geteuid() == 0 else []), "--bind-to", "none",
                 *(["--use-hwthread-cpus"] if threads else []),
                 *(["--oversubscribe", "--mca", "mpi_yield_when_idle", "1"] if crowded else []), "-n", str(nranks),
                 program, folder, how, name]]
    if name == "mpich":
        return [["mpirun.mpich", "-n", str(nranks), program, folder, how, name]]
    if name == "gloo":
        os.mkdir(f"{folder}/store")
        return [[program, folder, how, str(rank), str(nranks), "127.0.0.1"] for rank in range(nranks)]
    return [[program, folder, how, str(nranks)]]


def clean_environment():
    launchers = ("CHOIR_", "OMPI_", "PMI", "PMIX_", "SLURM_", "RANK", "WORLD_SIZE", "MASTER_", "LOCAL_")
    return {k: v for k, v in os.environ.items() if not k.startswith(launchers)}


class Contender:
    def __init__(self, name, build, nranks, how):
        self.name, self.processes, self.pipes, self.rounds = name, [], [], {}
        self.folder = tempfile.mkdtemp(prefix=f"compare-{name}-")
        for pipe in [f"go.{rank}" for rank in range(nranks)] + ["told"]:
            os.mkfifo(f"{self.folder}/{pipe}")
            # Open for both, so that neither side has to wait for the other to open it.
            self.pipes.append(os.open(f"{self.folder}/{pipe}", os.O_RDWR | os.O_CLOEXEC))
        self.told, self.answer = self.pipes.pop(), b""
        with open(f"{self.folder}/log", "wb") as log:
            for command in commands(name, build, nranks, self.folder, how):
                self.processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=clean_environment()))

    def hear(self, seconds):
        until = time.monotonic() + seconds
        while b"\n" not in self.answer:
            if select.select([self.told], [], [], 0.5)[0]:
                self.answer += os.read(self.told, 4096)
                continue
            ended = [p.returncode for p in self.processes if p.poll() is not None]
            if ended or time.monotonic() > until:
                log = pathlib.Path(f"{self.folder}/log").read_text(errors="replace").strip()[-2000:]
                raise Trouble(f"{self.name}: {f'ended with code {ended[0]}' if ended else f'no answer in {seconds} s'}\n{log}")
        line, self.answer = self.answer.split(b"\n", 1)
        return line.decode().split()

    def block(self, op, nbytes, manner, rounds, warm):
        """p50 in us, what the block took, and how many elements are wrong."""
        for pipe in self.pipes:
            os.write(pipe, f"{op} {nbytes} {int(manner.fresh)} {int(manner.whole)} {rounds} {warm}\n".encode())
        _, _, p50, _, _, wall, wrong = self.hear(BLOCK_SECONDS)
        return float(p50), float(wall), int(wrong)

    def prepare(self, op, nbytes, manner, ms):
        """Turn to an operation and size; how many rounds a block is to have, or None if one takes too long."""
        _, _, wrong = self.block(op, nbytes, manner, 1, 0)
        _, wall, _ = self.block(op, nbytes, manner, 3, 0)
        if wall / 3 < 1000:  # so short that the first ones tell little
            _, wall, _ = self.block(op, nbytes, manner, 15, 0)
            wall /= 5
        if wall / 3 > SLOWEST_ROUND_US:
            return None, wrong
        if wall / 3 > 4 * ms * 1000:
            return 1, wrong
        return max(3, min(2001, int(ms * 1000 / (wall / 3)) | 1)), wrong

    def close(self):
        for pipe in [*self.pipes, self.told]:
            os.close(pipe)  # the end of a rank's orders is its end
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.terminate()
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


# --- all of them -------------------------------------------------------------------------------------------

class Comparison:
    def __init__(self, build, nranks, names, bind):
        self.build = build
        self.nranks, self.contenders = nranks, []
        known = available(build)
        wanted = ["choir"] + [n for n in (names.split(",") if names else known) if n != "choir"]
        lacking = [name for name in wanted if name not in known]
        if lacking:
            sys.exit(f"compare: {', '.join(lacking)}: no such contender in {peers_folder(build)}; there are {', '.join(known) or 'none: run make first'}")
        how = "bound" if bind == "core" else "free"
        try:
            for name in wanted:
                self.contenders.append(Contender(name, build, nranks, how))
            for contender in list(self.contenders):
                try:
                    contender.hear(START_SECONDS)
                except Trouble as trouble:
                    self.leave_out(contender, trouble)
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for contender in self.contenders:
            contender.close()
        self.contenders = []

    def names(self):
        return [c.name for c in self.contenders]

    def leave_out(self, contender, why):
        if contender.name == "choir":
            raise Trouble(why)
        print(f"compare: going on without {why}", file=sys.stderr)
        self.contenders.remove(contender)
        contender.close()

    def measure(self, op, nbytes, manner, blocks, ms):
        watch, times, wrong, rounds = Watch(self.build), {}, {}, {}
        for contender in list(self.contenders):
            try:
                rounds[contender.name], wrong[contender.name] = contender.prepare(op, nbytes, manner, ms)
            except Trouble as trouble:
                self.leave_out(contender, trouble)
        for b in range(blocks):
            there = [c for c in self.contenders if rounds.get(c.name)]
            for i in range(len(there)):
                contender = there[(b + i) % len(there)]
                count = rounds[contender.name]
                try:
                    us, _, wrong[contender.name] = contender.block(op, nbytes, manner, count, warm_rounds(nbytes, count))
                except Trouble as trouble:
                    self.leave_out(contender, trouble)
                    continue
                times.setdefault(contender.name, []).append(us)
        return self.row(op, nbytes, manner, blocks, times, wrong, watch.facts())

    def row(self, op, nbytes, manner, blocks, times, wrong, facts):
        complete = {name: us for name, us in times.items() if len(us) == blocks}
        ours = complete.get("choir")
        ratio = {name: spread([a / b for a, b in zip(ours, us)]) for name, us in complete.items() if name != "choir"} if ours else {}
        rivals = {name: statistics.median(complete[name]) for name in ratio if name not in ("limit", "before")}
        best = min(rivals, key=rivals.get) if rivals else None
        return {"op": op, "bytes": nbytes, "ranks": self.nranks, "fresh": manner.fresh, "whole": manner.whole, "blocks": blocks,
                "us": {name: spread(us) for name, us in complete.items()}, "ratio": ratio,
                "best": {"name": best, "ratio": ratio[best]} if best else None, "wrong": wrong, "machine": facts}
