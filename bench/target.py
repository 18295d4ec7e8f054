"""The figures to reach: each row of the design's list as a check on the measured medians."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Get = Callable[[str, str, str], "float | None"]  # workload, contestant, figure -> median


@dataclass(frozen=True)
class Target:
    """One figure to reach: whose, what, the bound in words, and the bound against a reading of the medians."""

    who: str
    what: str
    bound: str
    reading: Callable[[Get], float | None]
    limit: Callable[[Get], float | None]
    at_least: bool
    decimals: int = 0


def _fixed(value: float) -> Callable[[Get], float | None]:
    return lambda get: value


def _of(workload: str, who: str, figure: str) -> Callable[[Get], float | None]:
    return lambda get: get(workload, who, figure)


def _ratio(workload: str, figure: str, ours: str, theirs: str) -> Callable[[Get], float | None]:
    def reading(get: Get) -> float | None:
        mine, other = get(workload, ours, figure), get(workload, theirs, figure)
        return mine / other if mine is not None and other else None

    return reading


def _commits(workload: str, who: str, key: str) -> Callable[[Get], float | None]:
    """A latency as a multiple of one bare commit through the same driver, in the same run."""

    def reading(get: Get) -> float | None:
        mine, bare = get(workload, who, "p50_ms"), get(workload, who, f"limit:{key}")
        return mine / bare if mine is not None and bare else None

    return reading


def _best_peer(workload: str, figure: str) -> Callable[[Get], float | None]:
    def limit(get: Get) -> float | None:
        found = [
            value
            for peer in ("dbos", "dbos-sqlite", "absurd", "restate")
            if (value := get(workload, peer, figure)) is not None
        ]
        return min(found) if found else None

    return limit


_COMMIT = {"ours": "pg_commit_p50_ms", "ours-sqlite": "sqlite_commit_p50_ms"}


def _history(who: str) -> list[Target]:
    """What a thousand times as much history may add to a wake."""
    return [
        at_most(who, "wake of a process with 10,000 events, × with 10", "w15", "ratio", 1.5, 2),
        at_most(who, "the same, CPU of the worker", "w15", "ratio_cpu", 1.5, 2),
    ]


def _large_results() -> list[Target]:
    """SQLite may take so much longer than PostgreSQL for steps that return 1 MB."""
    idle, busy = (
        _ratio("w16", "large_ms", "ours-sqlite", "ours"),
        _ratio("w16", "large_per_s", "ours", "ours-sqlite"),
    )
    return [
        Target("ours-sqlite", "step of 1 MB, idle, ms × PostgreSQL", "≤ 1.3", idle, _fixed(1.3), False, 2),
        Target("ours-sqlite", "steps of 1 MB at load, ms each × PostgreSQL", "≤ 1.3", busy, _fixed(1.3), False, 2),
    ]


def _longer(who: str) -> Callable[[Get], float | None]:
    def reading(get: Get) -> float | None:
        killed, calm = get("w7", who, "seconds"), get("w7", who, "calm_s")
        return killed - calm if killed is not None and calm is not None else None

    return reading


def _unfinished(who: str) -> Callable[[Get], float | None]:
    def reading(get: Get) -> float | None:
        n, finished = get("w7", who, "n"), get("w7", who, "finished")
        return n - finished if n is not None and finished is not None else None

    return reading


def _rates() -> list[Target]:
    w1, w2 = "one-step processes/s", "ten-step steps/s"
    rows = []
    for what, workload, figure, over_dbos in ((w1, "w1", "processes_per_s", 50), (w2, "w2", "steps_per_s", 100)):
        rows += [
            at_least("ours", what, workload, figure, 15_000 if workload == "w1" else 45_000),
            _over("ours", "dbos", "DBOS", what, workload, figure, over_dbos),
            _over("ours", "restate", "Restate", what, workload, figure, 15),
        ]
    return [
        *rows,
        _over("ours", "pgqueuer", "pgqueuer's bare jobs", w1, "w1", "processes_per_s", 2),
        at_least("ours-sqlite", w1, "w1", "processes_per_s", 20_000),
        at_least("ours-sqlite", w2, "w2", "steps_per_s", 55_000),
    ]


def _over(who: str, peer: str, title: str, what: str, workload: str, figure: str, times: float) -> Target:
    """So many times the figure of a peer."""
    reading = _ratio(workload, figure, who, peer)
    return Target(who, f"{what}, × {title}", f"≥ {times:g}", reading, _fixed(times), True, 1)


def _latencies() -> list[Target]:
    w3, w4 = "sequential step, idle, p50", "start to result, idle, p50"
    rows = []
    for who, key in _COMMIT.items():
        slow = "the same where a sync takes 1 ms longer"
        rows += [
            Target(who, w3, "≤ 2 × a bare commit", _commits("w3", who, key), _fixed(2), False, 2),
            Target(who, slow, "≤ 2 × a bare commit", _commits("w24", who, key), _fixed(2), False, 2),
            Target(who, w3 + " ms", "below every peer", _of("w3", who, "p50_ms"), _best_peer("w3", "p50_ms"), False, 2),
            Target(who, w4, "≤ 4 × a bare commit", _commits("w4", who, key), _fixed(4), False, 2),
        ]
    return rows


def at_most(who: str, what: str, workload: str, figure: str, bound: float, decimals: int = 0) -> Target:
    """A figure that may be no larger."""
    words = f"≤ {bound:g}" if bound else "none"
    return Target(who, what, words, _of(workload, who, figure), _fixed(bound), False, decimals)


def at_least(who: str, what: str, workload: str, figure: str, bound: float, decimals: int = 0) -> Target:
    """A figure that may be no smaller."""
    return Target(who, what, f"≥ {bound:,g}", _of(workload, who, figure), _fixed(bound), True, decimals)


def _crowd(who: str, other_ms: float) -> list[Target]:
    """Timers, a filled store, a killed worker, and work that another worker does."""
    longer = Target(who, "kill -9: finished later than without, s", "≤ 3", _longer(who), _fixed(3), False, 2)
    unfinished = Target(who, "kill -9: processes without a result", "none", _unfinished(who), _fixed(0), False)
    return [
        at_most(who, "last of 2,000 timers, s late", "w5", "last_wake_s", 0.25, 3),
        at_most(who, "timers fired early", "w5", "early", 0),
        at_least(who, "rate with 1,000,000 waiting rows, × empty", "w6", "waiting_ratio", 0.9, 2),
        at_least(who, "rate with 1,000,000 finished rows, × empty", "w6", "finished_ratio", 0.9, 2),
        at_most(who, "memory of a worker beside 1,000,000 sleepers, MiB more", "w6", "worker_rss_more_mib", 4, 1),
        at_most(who, "kill -9: seen after s", "w7", "seen_s", 1, 2),
        longer,
        at_most(who, "kill -9: effects lost", "w7", "missing", 0),
        unfinished,
        at_most(who, "kill -9: effects repeated, most in one process", "w7", "repeated_most", 1),
        at_most(who, "kill -9 of a fresh worker: seen after s", "w7", "fresh_seen_s", 1, 2),
        at_most(who, "kill -9 of a fresh worker: effects lost", "w7", "fresh_missing", 0),
        at_most(who, "kill -9 of a fresh worker: processes without a result", "w7", "fresh_unfinished", 0),
        at_least(who, "client to another worker, processes/s", "w10", "processes_per_s", 8_000),
        at_most(who, "client to another worker, idle p50 ms", "w10", "p50_ms", other_ms, 2),
        at_least(who, "rate with 100,000 children of one parent, × 10,000", "w12", "ratio", 0.8, 2),
        at_least(who, "tasks/s of a queue in which 1,000,000 wait, × few", "w13", "ratio", 0.9, 2),
        at_least(who, "queued steps/s", "w11", "tasks_per_s", 3_000),
        _queued_step(who, "queued step, idle, p50", "w11"),
        _queued_step(who, "the same where a sync takes 1 ms longer", "w14"),
        *_history(who),
        at_most(who, "largest RSS while 20,000 with 100 events each are woken, MiB", "w19", "peak_rss_mib", 184),
        at_least(who, "calls/s to 1,000 machines", "w20", "calls_per_s", 10_000),
        _idle_call(who, "a call to a machine, idle, p50", "w20"),
        _idle_call(who, "the same where a sync takes 1 ms longer", "w23"),
        at_most(who, "100,000 schedules due at one instant: the last began s after", "w21", "last_s", 60, 1),
        at_least(who, "100,000 failed processes: dry run /s", "w22", "tried_per_s", 10_000),
        at_least(who, "100,000 failed processes: commanded by one operation /s", "w22", "commands_per_s", 5_000),
        at_most(who, "p99 of starts meanwhile, × quiet", "w22", "p99_ratio", 5, 1),
        at_most(who, "commanded twice or lost after a kill", "w22", "miscounted", 0),
        at_most(who, "a call to a machine with 1,000,000 behind it, × a young one", "w20", "ratio", 1.25, 2),
        at_least(who, "20,000 by start_many, × a closed loop", "w18", "ratio", 0.95, 2),
    ]


def _queued_step(who: str, what: str, workload: str) -> Target:
    """From asking for a queued step to its result, across two workers."""
    return Target(who, what, "≤ 8 × a bare commit", _commits(workload, who, _COMMIT[who]), _fixed(8), False, 2)


def _idle_call(who: str, what: str, workload: str) -> Target:
    """From a call to its answer, by the engine that holds the machine."""
    return Target(who, what, "≤ 2.5 × a bare commit", _commits(workload, who, _COMMIT[who]), _fixed(2.5), False, 2)


def _footprint(who: str, idle_percent: float, stored: float) -> list[Target]:
    """What it costs when it does nothing, and what it keeps: 60 of the bytes are what the small dicts hold."""
    return [
        at_most(who, "largest RSS of a worker under its first load, MB", "w10", "worker_peak_rss_mb", 120),
        at_most(who, "bytes stored for a finished one-step process, compacted", "w8", "bytes_each", stored),
        at_most(who, "the same as the load left it, before any vacuum", "w8", "bytes_as_left", stored),
        at_most(who, "import, ms", "w8", "import_ms", 150),
        at_most(who, "idle worker, % of a core", "w8", "idle_cpu_percent", idle_percent, 2),
        at_most(who, "idle worker, RSS MB", "w8", "rss_fresh_mb", 40, 1),
    ]


TARGETS: tuple[Target, ...] = (
    *_rates(),
    *_latencies(),
    *_crowd("ours", other_ms=5),
    *_footprint("ours", idle_percent=0.5, stored=760),
    *_crowd("ours-sqlite", other_ms=20),
    *_footprint("ours-sqlite", idle_percent=1.0, stored=360),
    *_large_results(),
    at_least("ours", "two engines, one-step, × one engine", "w17", "one_step_ratio", 1.6, 2),
    at_least("ours", "two engines, ten-step, × one engine", "w17", "ten_steps_ratio", 1.6, 2),
    at_least("ours", "two engines, calls/s to 1,000 machines", "w17", "calls_per_s_2", 10_000),
    at_most("ours", "a step at load, transactions", "w9", "transactions_per_step_all_in", 0.02, 4),
    at_most("ours", "a step at load, reads", "w9", "reads_per_step", 0.0005, 4),
)
