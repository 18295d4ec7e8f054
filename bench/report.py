"""Turns what was measured into tables: medians, ratios to the limits of the same run, and targets reached or not."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

from bench import contest, contestant, target, workload
from bench.workload import Workload

README = Path(__file__).resolve().parent / "README.md"
BEGIN, END = "<!-- results: written by `python -m bench report` -->", "<!-- end of results -->"
GOOD_RUNS = 3
PROVISIONAL = (
    "† measured in another run than the newest row of its table. "
    "Provisional: fewer than three runs, a busy machine, or a ratio over two runs."
)
LIMITS = {
    "postgres": (
        ("pg_commit_per_s", "INSERT+COMMIT/s", 0),
        ("pg_commit_p50_ms", "p50 ms", 3),
        ("pg_unnest_1000_rows_per_s", "rows/s by 1,000", 0),
    ),
    "sqlite": (
        ("sqlite_commit_per_s", "INSERT+COMMIT/s", 0),
        ("sqlite_commit_p50_ms", "p50 ms", 3),
        ("sqlite_1000_rows_per_s", "rows/s by 1,000", 0),
    ),
    "own": (("fdatasync_per_s", "append+fdatasync/s", 0), ("fdatasync_p50_ms", "p50 ms", 3)),
}
RATIO = {"w1": "processes_per_s", "w2": "steps_per_s", "w3": "p50_ms", "w4": "p50_ms", "w10": "processes_per_s"}


def middle(entry: dict[str, Any] | None, figure: str) -> float | None:
    """The median of a figure over the runs of one contestant; ``limit:x`` reads the limits probed beside them."""
    if entry is None:
        return None
    rows = entry["limits"] if figure.startswith("limit:") else entry["runs"]
    key = figure.removeprefix("limit:")
    values = [float(row[key]) for row in rows if row.get(key) is not None]
    return median(values) if values else None


class _Reader:
    """Reads medians of what is kept, and remembers whether a provisional one was among them."""

    def __init__(self) -> None:
        self.kept = {name: contest.load_results(name) for name in workload.ALL}
        self.begin()

    def begin(self) -> None:
        """A new reading: nothing read yet."""
        self.provisional = False
        self.stamps: set[str] = set()

    def __call__(self, name: str, who: str, figure: str) -> float | None:
        entry = self.kept[name].get(who)
        if entry is not None:
            self.stamps.add(str(entry["stamp"]))
            self.provisional = self.provisional or provisional(entry) or len(self.stamps) > 1
        return middle(entry, figure)


def table(one: Workload) -> str:
    """The results of one workload as a Markdown table, one row for each contestant that was measured."""
    results = contest.load_results(one.name)
    heads = ["", *(figure.heading for figure in one.figures)]
    if one.name in RATIO:
        heads.append("× limit")
    lines = ["| " + " | ".join([*heads, "runs"]) + " |", "|---" * (len(heads) + 1) + "|"]
    for who in contestant.ALL.values():
        entry = results.get(who.name)
        if entry is None:
            continue
        cells = [_cell(middle(entry, figure.key), figure.decimals) for figure in one.figures]
        if one.name in RATIO:
            cells.append(_cell(_to_limit(one.name, who.store, entry), 2))
        mark = "" if _same_run(results, entry) else " †"
        lines.append("| " + " | ".join([who.title + mark, *cells, _runs(entry)]) + " |")
    return "\n".join(lines)


def _same_run(results: dict[str, Any], entry: dict[str, Any]) -> bool:
    return str(entry["stamp"]) == max(str(one["stamp"]) for one in results.values())


def _runs(entry: dict[str, Any]) -> str:
    failed = sum(1 for run in entry["runs"] if "problem" in run)
    marks = [f"{failed} failed"] * bool(failed) + ["provisional"] * provisional(entry)
    return f"{len(entry['runs'])}" + (f" ({', '.join(marks)})" if marks else "")


def provisional(entry: dict[str, Any]) -> bool:
    """Whether there were fewer than three good runs, or the machine was busy with other work before them."""
    good = [run for run in entry["runs"] if "problem" not in run]
    return len(good) < GOOD_RUNS or median(run.get("load_average", 0.0) for run in good) > contest.BUSY


def _to_limit(name: str, store: str, entry: dict[str, Any]) -> float | None:
    value = middle(entry, RATIO[name])
    rate, latency = LIMITS[store][0][0], LIMITS[store][1][0]
    bare = middle(entry, "limit:" + (latency if RATIO[name] == "p50_ms" else rate))
    return value / bare if value is not None and bare else None


def _cell(value: float | None, decimals: int) -> str:
    return "–" if value is None else f"{value:,.{decimals}f}"


def limits_table() -> str:
    """The bare limits, over all runs that are kept, on the disk as it is."""
    rows: list[dict[str, Any]] = []
    for name in (one.name for one in workload.ALL.values() if not one.sync_ms):
        for entry in contest.load_results(name).values():
            rows += entry["limits"]
    lines = ["| bare limit | median | lowest | highest |", "|---|---|---|---|"]
    for store, limits in LIMITS.items():
        for key, label, decimals in limits:
            values = [float(row[key]) for row in rows if key in row]
            if values:
                shown = (_cell(value, decimals) for value in (median(values), min(values), max(values)))
                lines.append(f"| {_STORE[store]}: {label} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


_STORE = {
    "postgres": "PostgreSQL, one connection, asyncpg",
    "sqlite": "SQLite, WAL, synchronous FULL",
    "own": "file, 4 KiB",
}


def targets_table() -> str:
    """Every figure to reach, what was measured, and whether it is reached."""
    get = _Reader()
    lines = ["| whose | what | to reach | measured | |", "|---|---|---|---|---|"]
    for one in target.TARGETS:
        get.begin()
        value, bound = one.reading(get), one.limit(get)
        verdict = "not measured"
        if value is not None and bound is not None:
            verdict = "reached" if (value >= bound if one.at_least else value <= bound) else "**not reached**"
            verdict += " (provisional)" if get.provisional else ""
        title = contestant.ALL[one.who].title
        lines.append(f"| {title} | {one.what} | {one.bound} | {_cell(value, one.decimals)} | {verdict} |")
    return "\n".join(lines)


def versions_list() -> str:
    """The versions of everything that was measured, and on what machine."""
    lines: list[str] = []
    seen: dict[str, str] = {}
    for name in workload.ALL:
        for taker, entry in contest.load_results(name).items():
            packages = ", ".join(f"{package} {version}" for package, version in sorted(entry["versions"].items()))
            seen[taker] = f"{packages}; PostgreSQL {entry['postgres']}; {entry['machine']}; last run {entry['stamp']}"
    for who in contestant.ALL.values():
        if who.name in seen:
            note = f" ({who.notes})" if who.notes else ""
            lines.append(f"- {who.title}{note}: {seen[who.name]}")
    return "\n".join(lines)


def whole() -> str:
    """Everything that stands between the two marks of the README."""
    parts = ["## Figures to reach", targets_table(), "## Limits of the machine", limits_table()]
    for one in workload.ALL.values():
        if contest.load_results(one.name):
            parts += [f"## {one.name.upper()}: {one.title}", table(one)]
    parts += [
        PROVISIONAL,
        "## Versions",
        versions_list(),
    ]
    return "\n\n".join(parts)


def write() -> None:
    """Put the tables into the README, between the marks."""
    text = README.read_text()
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    README.write_text(f"{head}{BEGIN}\n\n{whole()}\n\n{END}{tail or chr(10)}")
    print(f"wrote {README}")
