"""Runs a workload: rounds in which the limits and the contestants take turns, so that all meet the same machine."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench import contestant, limit
from bench.contestant import ROOT, Contestant
from bench.database import Cluster
from bench.interpreter import build_of
from bench.seat import DriverFailed, Seat
from bench.slow_disk import NoSlowDisk, slowed
from bench.workload import Workload

RESULTS = Path(__file__).resolve().parent / "results"
BUSY = 0.2  # processors kept busy by others before a round
LOOK_SECONDS = 1.0
LIMIT = Contestant("limits", "bare limits", limit.__name__, "", "postgres", {}, env={"BENCH_PROFILE": ""})


def hold(workload: Workload, names: Sequence[str], runs: int, scale: float = 1.0, n: int | None = None) -> None:
    """Run the workload with these contestants, so many alternated rounds, and keep what was measured."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    takers = [who for who in map(contestant.ALL.__getitem__, names) if workload.name in who.sizes]
    for who in [one for one in takers if not one.installed]:
        print(f"  {who.name} is not installed (python -m bench install): left out")
        takers.remove(who)
    with ground(workload) as cluster:
        if cluster is None:
            return
        for turn in range(runs):
            load = others()
            limits = _probe(cluster)
            for who in takers:
                size = n or who.size(workload.name, scale)
                measured = one_run(workload, who, cluster, size)
                measured["load_average"] = load
                _say(workload, who, turn, measured)
                if not os.environ.get("BENCH_PROFILE"):  # a profiled run is slow: it is shown, never kept
                    _keep(workload, who, stamp, measured, limits, cluster.version())


@contextmanager
def ground(workload: Workload) -> Iterator[Cluster | None]:
    """The server for a workload, on a disk as slow as it asks for; none, and why, where no disk can be made slow."""
    with ExitStack() as stack:
        try:
            stack.enter_context(slowed(workload.sync_ms))
        except NoSlowDisk as missing:
            print(f"  {workload.name}: {missing}: left out")
            yield None
            return
        yield stack.enter_context(Cluster(workload.settings))


def others() -> float:
    """How many processors others keep busy, which is told if it is too much."""
    load = _load()
    if load > BUSY:
        print(f"  other work keeps {load:.1f} processors busy: take the figures as provisional")
    return load


def _load() -> float:
    """How many processors are kept busy while nothing of ours runs; the load average where the system does not say.

    The load average itself would count the round before.
    """
    try:
        before = _busy_ticks()
        time.sleep(LOOK_SECONDS)
        return (_busy_ticks() - before) / os.sysconf("SC_CLK_TCK") / LOOK_SECONDS
    except OSError:
        return os.getloadavg()[0]


def _busy_ticks() -> int:
    user, nice, system, _idle, _waiting, *rest = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:])
    return user + nice + system + sum(rest)


def _probe(cluster: Cluster) -> dict[str, Any]:
    with Seat(LIMIT, cluster) as seat:
        return seat.run("probe", 60.0)


def one_run(workload: Workload, who: Contestant, cluster: Cluster, size: int) -> dict[str, Any]:
    """Let one contestant run the workload once: what was measured, or the problem that it met."""
    try:
        return workload.measure(who, cluster, size)
    except DriverFailed as problem:
        return {"problem": str(problem)}


def _say(workload: Workload, who: Contestant, turn: int, measured: dict[str, Any]) -> None:
    if "problem" in measured:
        print(f"  {workload.name} round {turn + 1} {who.name}: FAILED {measured['problem']}", flush=True)
        return
    parts = [
        f"{figure.heading} {measured[figure.key]:,.{figure.decimals}f}"
        for figure in workload.figures
        if measured.get(figure.key) is not None
    ]
    print(f"  {workload.name} round {turn + 1} {who.name}: " + "; ".join(parts), flush=True)


def load_results(name: str) -> dict[str, Any]:
    """What was measured last for a workload: for each contestant its runs, its limits, when, and versions."""
    try:
        kept: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    except OSError:
        return {}
    return kept


def _keep(
    workload: Workload, who: Contestant, stamp: str, measured: dict[str, Any], limits: dict[str, Any], server: str
) -> None:
    """Add one run; the first run under a new stamp replaces what was kept of this contestant."""
    RESULTS.mkdir(exist_ok=True)
    results = load_results(workload.name)
    entry = results.get(who.name)
    if entry is None or entry["stamp"] != stamp:
        entry = {
            "stamp": stamp,
            "versions": versions(who),
            "postgres": server,
            "machine": f"{machine()}, {build_of(who.python)}",
            "runs": [],
            "limits": [],
        }
    if "problem" in measured:
        measured = {
            **measured,
            "problem": measured["problem"].splitlines()[0],
        }  # the rest names folders of this machine
    entry["runs"].append(measured)
    entry["limits"].append(limits)
    results[who.name] = entry
    text = json.dumps(results, indent=1, sort_keys=True) + "\n"
    with tempfile.NamedTemporaryFile("w", dir=RESULTS, delete=False) as file:
        file.write(text)
    os.chmod(file.name, 0o644)
    os.replace(file.name, RESULTS / f"{workload.name}.json")


def versions(who: Contestant) -> dict[str, str]:
    """The versions of a contestant's packages, its Python, and for ours the commit."""
    code = (
        "import sys, json; from importlib.metadata import version; import platform;"
        "print(json.dumps({'python': platform.python_version(), **{name: version(name) for name in sys.argv[1:]}}))"
    )
    out = subprocess.run([who.python, "-c", code, *who.packages], capture_output=True, text=True, check=True).stdout
    found: dict[str, str] = json.loads(out)
    if who.home == "restate":
        package = ROOT / "bench/.peers/restate/server/node_modules/@restatedev/restate-server/package.json"
        found["restate-server"] = json.loads(package.read_text())["version"]
    if not who.home:
        command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
        found["perdure"] = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip() or "unknown"
    return found


def machine() -> str:
    """The machine in a few words: cores, memory, system."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()} {platform.machine()}"
