"""Who takes part: ours and the peers, where each one's Python is, what it stores in, and how big its runs are."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PEERS = Path(__file__).resolve().parent / ".peers"


@dataclass(frozen=True)
class Contestant:
    """One engine on one store: a name for tables, the driver module, and the processes per run of each workload."""

    name: str
    title: str
    module: str
    home: str  # folder below .peers, empty for ours
    store: str  # "postgres", "sqlite", or "own" for an engine that brings its own server
    sizes: dict[str, int]
    variant: str = ""
    scheme: str = "postgresql"
    imports: str = ""
    packages: tuple[str, ...] = ()
    notes: str = ""
    env: dict[str, str] = field(default_factory=dict)
    under: tuple[str, ...] = ()  # a program that runs the driver's interpreter, such as a counter of instructions

    @property
    def python(self) -> str:
        """The interpreter that the driver runs in."""
        return str(PEERS / self.home / "bin" / "python") if self.home else sys.executable

    @property
    def installed(self) -> bool:
        """Whether its environment is there."""
        return not self.home or os.path.exists(self.python)

    def size(self, workload: str, scale: float = 1.0) -> int:
        """How many processes, or steps, its run of a workload has."""
        return max(1, round(self.sizes[workload] * scale))

    def environment(self) -> dict[str, str]:
        """The environment variables of its drivers; whatever ours are, an import is that of compiled code."""
        added = {"BENCH_PEER_HOME": str(PEERS / self.home), "PYTHONPATH": _path(self.home), "PYTHONHASHSEED": "0"}
        ours = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return {**ours, **added, **self.env}


def _path(home: str) -> str:
    return str(ROOT) if home else os.pathsep.join([str(ROOT / "src"), str(ROOT)])


OURS = (
    Contestant(
        "ours",
        "Perdure, PostgreSQL",
        "bench.ours",
        "",
        "postgres",
        {
            "w1": 60_000,
            "w2": 12_000,
            "w3": 300,
            "w4": 200,
            "w5": 2_000,
            "w6": 30_000,
            "w7": 500,
            "w8": 5_000,
            "w9": 20_000,
            "w10": 30_000,
            "w11": 10_000,
            "w12": 100_000,
            "w13": 20_000,
            "w14": 10_000,
            "w15": 8,
            "w16": 100,
            "w17": 60_000,
            "w18": 20_000,
            "w19": 20_000,
            "w20": 40_000,
            "w21": 100_000,
            "w22": 100_000,
            "w23": 200,
            "w24": 300,
        },
        imports="perdure.engine",  # what starts processes; `import perdure` alone imports a part of it
        packages=("asyncpg", "cronsim", "msgspec", "tzdata"),
    ),
    Contestant(
        "ours-sqlite",
        "Perdure, SQLite",
        "bench.ours",
        "",
        "sqlite",
        {
            "w1": 60_000,
            "w2": 12_000,
            "w3": 300,
            "w4": 200,
            "w5": 2_000,
            "w6": 30_000,
            "w7": 500,
            "w8": 5_000,
            "w10": 30_000,
            "w11": 10_000,
            "w12": 100_000,
            "w13": 20_000,
            "w14": 10_000,
            "w15": 8,
            "w16": 100,
            "w18": 20_000,
            "w19": 20_000,
            "w20": 40_000,
            "w21": 100_000,
            "w22": 100_000,
            "w23": 200,
            "w24": 300,
        },
        scheme="sqlite",
        imports="perdure.engine",  # what starts processes; `import perdure` alone imports a part of it
    ),
)

RIVALS = (
    Contestant(
        "dbos",
        "DBOS, PostgreSQL",
        "bench.peers.dbos",
        "dbos",
        "postgres",
        {
            "w1": 1_500,
            "w2": 300,
            "w3": 300,
            "w4": 200,
            "w5": 2_000,
            "w6": 1_000,
            "w7": 500,
            "w8": 1_000,
            "w9": 300,
            "w10": 500,
            "w11": 300,
        },
        scheme="postgresql+psycopg",
        imports="dbos",
        packages=("dbos", "SQLAlchemy", "psycopg"),
        notes="sync functions in process; W5 async functions; W7 and W10 through its queue",
    ),
    Contestant(
        "dbos-async",
        "DBOS async, PostgreSQL",
        "bench.peers.dbos",
        "dbos",
        "postgres",
        {"w1": 1_000, "w2": 200},
        variant="async",
        scheme="postgresql+psycopg",
        packages=("dbos",),
        notes="async functions in process",
    ),
    Contestant(
        "dbos-queue",
        "DBOS queue, PostgreSQL",
        "bench.peers.dbos",
        "dbos",
        "postgres",
        {"w1": 400, "w2": 100, "w6": 400},
        variant="queue",
        scheme="postgresql+psycopg",
        packages=("dbos",),
        notes="through its queue, default polling",
    ),
    Contestant(
        "dbos-sqlite",
        "DBOS, SQLite",
        "bench.peers.dbos",
        "dbos",
        "sqlite",
        {"w1": 600, "w2": 150, "w3": 300, "w4": 200, "w5": 2_000},
        variant="sqlite",
        scheme="sqlite",
        packages=("dbos",),
        notes="sync functions in process",
    ),
    Contestant(
        "absurd",
        "Absurd",
        "bench.peers.absurd",
        "absurd",
        "postgres",
        {
            "w1": 2_000,
            "w2": 300,
            "w3": 300,
            "w4": 30,
            "w5": 2_000,
            "w6": 1_500,
            "w7": 500,
            "w8": 1_000,
            "w9": 300,
            "w10": 1_500,
            "w11": 1_000,
        },
        imports="absurd_sdk",
        packages=("absurd-sdk", "absurdctl", "psycopg"),
        notes="two worker loops of 64, default polling; the schema is the one bundled with absurdctl",
    ),
    Contestant(
        "restate",
        "Restate",
        "bench.peers.restate",
        "restate",
        "own",
        {
            "w1": 4_000,
            "w2": 1_000,
            "w3": 300,
            "w4": 200,
            "w5": 2_000,
            "w7": 500,
            "w8": 1_000,
            "w10": 4_000,
            "w20": 4_000,
        },
        imports="restate",
        packages=("restate-sdk", "hypercorn", "aiohttp"),
        notes="its server, one endpoint process, 128 HTTP clients in a third process",
    ),
    Contestant(
        "pgqueuer",
        "pgqueuer (jobs only)",
        "bench.peers.pgqueuer",
        "pgqueuer",
        "postgres",
        {"w1": 30_000, "w4": 50, "w5": 2_000, "w6": 20_000, "w8": 5_000, "w9": 5_000, "w10": 30_000, "w11": 30_000},
        imports="pgqueuer",
        packages=("pgqueuer", "asyncpg"),
        notes="a queue of bare jobs, without steps or results; enqueued 500 at once, batches of 100",
    ),
)

ALL = {one.name: one for one in (*OURS, *RIVALS)}
DEFAULT = ("ours", "ours-sqlite", "dbos", "dbos-sqlite", "absurd", "restate", "pgqueuer")
