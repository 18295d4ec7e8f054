"""The workloads: what each asks, which figures it gives, and how one run of one contestant is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from bench import backlog, footprint, old_machine, recovery, repair, several, traffic
from bench.contestant import Contestant
from bench.database import Cluster
from bench.seat import Seat

Measurement = dict[str, Any]
W5_LEAD_SECONDS = 12.0
W21_SECONDS = 1_200.0  # a full run waits four minutes alone until its schedules are due
SLOW_SYNC_MS = 1.0
HISTORIES = (10, 1_000, 10_000)  # events before the first wake
HISTORY = 100  # events of each of the very many that are woken in turn


@dataclass(frozen=True)
class Figure:
    """One column of a result table: the key in the measurement, its heading, and how many decimals it has."""

    key: str
    heading: str
    decimals: int = 0


@dataclass(frozen=True)
class Workload:
    """One question put to every contestant."""

    name: str
    title: str
    figures: tuple[Figure, ...]
    measure: Callable[[Contestant, Cluster, int], Measurement]
    settings: tuple[str, ...] = ()
    sync_ms: float = 0.0  # how much longer than the disk's own a sync takes


def _simple(role: str, **asked: Any) -> Callable[[Contestant, Cluster, int], Measurement]:
    def measure(who: Contestant, cluster: Cluster, n: int) -> Measurement:
        with Seat(who, cluster) as seat:
            return seat.run(role, n=n, **asked)

    return measure


def _backlog(who: Contestant, cluster: Cluster, n: int) -> Measurement:
    with ExitStack() as stack:
        waiting, finished = (stack.enter_context(Seat(who, cluster)) for _ in range(2))
        return backlog.measure((waiting, finished), n)


def _recovery(who: Contestant, cluster: Cluster, n: int) -> Measurement:
    with Seat(who, cluster) as seat:
        seat.prepare()
        answer = recovery.measure(seat, n)
    with Seat(who, cluster) as seat:  # nothing that the first kill left undone gets in the way
        seat.prepare()
        return answer | recovery.measure_fresh(seat, n)


def _footprint(who: Contestant, cluster: Cluster, n: int) -> Measurement:
    with Seat(who, cluster) as seat:
        return footprint.measure(seat, n)


def _traffic(who: Contestant, cluster: Cluster, n: int) -> Measurement:
    with Seat(who, cluster) as seat:
        return traffic.measure(seat, n)


def _old_machine(who: Contestant, cluster: Cluster, n: int) -> Measurement:
    with Seat(who, cluster) as seat:
        return old_machine.measure(seat, n)


def _repair(who: Contestant, cluster: Cluster, n: int) -> Measurement:
    with Seat(who, cluster) as seat:
        return repair.measure(seat, n)


def _other_worker(who: Contestant, cluster: Cluster, n: int) -> Measurement:
    with Seat(who, cluster) as seat:
        seat.prepare()
        worker = seat.worker()
        answer = seat.run("w10", n=n)
        answer["worker_peak_rss_mb"] = _peak_rss(worker.pid)
        return answer


def _queued(who: Contestant, cluster: Cluster, n: int) -> Measurement:
    with Seat(who, cluster) as seat:
        seat.prepare()
        seat.worker("counter")
        return seat.run("w11", n=n)


def _flooded(who: Contestant, cluster: Cluster, n: int) -> Measurement:
    with Seat(who, cluster) as seat:
        return backlog.measure_queue(seat, n)


def wakes(who: Contestant, cluster: Cluster, n: int, histories: Sequence[int] = HISTORIES) -> Measurement:
    """W15: n processes for each length of history, in a worker of their own."""
    with Seat(who, cluster) as seat:
        seat.prepare()
        return seat.run("w15", n=n, histories=list(histories), worker=seat.worker().pid)


def wakes_in_turn(who: Contestant, cluster: Cluster, n: int) -> Measurement:
    """W19."""
    with Seat(who, cluster) as seat:
        return backlog.measure_wakes(seat, n, HISTORY)


def _one_and_two(key: str, one: str, two: str) -> tuple[Figure, ...]:
    """What is shown of one engine and of two, whose rates have these headings."""
    return (
        Figure(f"{key}_per_s_1", one),
        Figure(f"{key}_per_s_2", two),
        Figure(f"{key}_ratio", "× one", 2),
        Figure(f"{key}_cpu_ms_1", "one: CPU ms each", 3),
        Figure(f"{key}_cpu_ms_2", "two: CPU ms each", 3),
        Figure(f"{key}_server_cpu_ms_1", "one: server CPU ms each", 3),
        Figure(f"{key}_server_cpu_ms_2", "two: server CPU ms each", 3),
        Figure(f"{key}_busy_percent", "two: % of all processors busy"),
    )


def _peak_rss(root: int) -> float:
    """The largest resident MB that any process of the worker has had."""
    from pathlib import Path

    from bench.database import family

    peaks = [0]
    for pid in family(root):
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        peaks += [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")]
    return max(peaks) * 1024 / 1e6


RATE = (
    Figure("processes_per_s", "processes/s"),
    Figure("cpu_ms_each", "client CPU ms each", 2),
    Figure("peak_rss_mib", "peak RSS MiB"),
)
LATENCY = (Figure("p50_ms", "p50 ms", 2), Figure("p99_ms", "p99 ms", 2))

ALL = {
    one.name: one
    for one in (
        Workload("w1", "one-step processes per second", RATE, _simple("w1", steps=1)),
        Workload(
            "w2",
            "steps per second in ten-step processes",
            (Figure("steps_per_s", "steps/s"), Figure("cpu_ms_each", "client CPU ms each", 2)),
            _simple("w2", steps=10),
        ),
        Workload("w3", "latency of one sequential step, idle system", LATENCY, _simple("w3")),
        Workload("w4", "start to result of a one-step process, idle system", LATENCY, _simple("w4")),
        Workload(
            "w5",
            "2,000 timers due at one instant (the first effect after the sleep)",
            (
                Figure("median_lag_s", "median lag s", 3),
                Figure("last_wake_s", "last wake s", 3),
                Figure("early", "early"),
                Figure("last_result_s", "last result s", 3),
                Figure("submit_s", "submitted in s", 2),
            ),
            _simple("w5", lead=W5_LEAD_SECONDS),
        ),
        Workload(
            "w6",
            "one-step processes per second beside 1,000,000 waiting or finished rows",
            (
                Figure("empty_per_s", "empty /s"),
                Figure("waiting_per_s", "waiting /s"),
                Figure("waiting_ratio", "× empty", 2),
                Figure("finished_per_s", "finished /s"),
                Figure("finished_ratio", "× empty", 2),
                Figure("worker_rss_more_mib", "worker RSS more by MiB", 1),
            ),
            _backlog,
        ),
        Workload(
            "w7",
            "kill -9 of the busier of two workers; 500 processes × 5 steps of 0.3 s; default settings, no restart",
            (
                Figure("calm_s", "without the kill s", 1),
                Figure("seconds", "with the kill s", 1),
                Figure("after_kill_s", "done after the kill s", 1),
                Figure("seen_s", "seen after s", 2),
                Figure("finished", "finished"),
                Figure("missing", "effects missing"),
                Figure("repeated", "effects repeated"),
                Figure("repeated_most", "most in one process"),
                Figure("fresh_seen_s", "fresh worker: seen after s", 2),
                Figure("fresh_after_kill_s", "fresh: done after the kill s", 1),
                Figure("fresh_missing", "fresh: effects missing"),
                Figure("fresh_unfinished", "fresh: not finished"),
            ),
            _recovery,
        ),
        Workload(
            "w8",
            "footprint",
            (
                Figure("import_ms", "import ms"),
                Figure("idle_cpu_percent", "idle worker CPU %", 2),
                Figure("idle_server_cpu_percent", "idle server CPU %", 2),
                Figure("rss_fresh_mb", "RSS fresh MB", 1),
                Figure("rss_after_mb", "RSS after 1,000 MB", 1),
                Figure("bytes_each", "bytes a finished process, compacted"),
                Figure("bytes_as_left", "bytes as left"),
            ),
            _footprint,
        ),
        Workload(
            "w9",
            "what the database is asked for (PostgreSQL)",
            (
                Figure("transactions_per_process", "transactions a one-step process", 3),
                Figure("transactions_per_step", "transactions a further step", 3),
                Figure("statements_per_step", "statements a further step", 3),
                Figure("reads_per_step", "reads a further step", 3),
                Figure("wal_bytes_per_step", "log bytes a further step"),
                Figure("transactions_per_idle_step", "transactions a step, idle", 2),
            ),
            _traffic,
            traffic.SETTINGS,
        ),
        Workload(
            "w10",
            "started by a client, run by another worker",
            (*RATE[:2], Figure("worker_peak_rss_mb", "worker peak RSS MB"), *LATENCY),
            _other_worker,
        ),
        Workload(
            "w11",
            "queued steps, asked for by one worker and run by another",
            (Figure("tasks_per_s", "tasks/s"), *LATENCY),
            _queued,
        ),
        Workload(
            "w12",
            "children of one parent, all asked for at once (the first rate with a tenth of them)",
            (
                Figure("few_per_s", "children/s, a tenth"),
                Figure("children_per_s", "children/s"),
                Figure("ratio", "× a tenth", 2),
                Figure("cpu_ms_each", "CPU ms each", 2),
                Figure("peak_rss_mib", "peak RSS MiB"),
            ),
            _simple("w12"),
        ),
        Workload(
            "w13",
            "tasks per second of a queue in which 1,000,000 wait",
            (
                Figure("few_per_s", "few waiting /s"),
                Figure("tasks_per_s", "1,000,000 waiting /s"),
                Figure("ratio", "× few", 2),
            ),
            _flooded,
        ),
        Workload(
            "w14",
            f"queued steps as in W11, each sync of the disk {SLOW_SYNC_MS:g} ms longer",
            (Figure("tasks_per_s", "tasks/s"), *LATENCY),
            _queued,
            sync_ms=SLOW_SYNC_MS,
        ),
        Workload(
            "w15",
            "waking a process with 10, 1,000 and 10,000 events of history (signal to the first effect after it)",
            (
                Figure("short_ms", "10: p50 ms", 2),
                Figure("middle_ms", "1,000: p50 ms", 2),
                Figure("long_ms", "10,000: p50 ms", 2),
                Figure("ratio", "10,000 × 10", 2),
                Figure("short_cpu_ms", "10: worker CPU ms", 2),
                Figure("middle_cpu_ms", "1,000: worker CPU ms", 2),
                Figure("long_cpu_ms", "10,000: worker CPU ms", 2),
                Figure("ratio_cpu", "CPU, 10,000 × 10", 2),
            ),
            wakes,
        ),
        Workload(
            "w16",
            "steps that return 1 kB, 100 kB and 1 MB",
            (
                Figure("small_per_s", "1 kB: steps/s"),
                Figure("middle_per_s", "100 kB: steps/s"),
                Figure("large_per_s", "1 MB: steps/s"),
                Figure("small_ms", "1 kB: ms a step, idle", 2),
                Figure("middle_ms", "100 kB: ms a step, idle", 2),
                Figure("large_ms", "1 MB: ms a step, idle", 2),
            ),
            _simple("w16"),
        ),
        Workload(
            "w17",
            "two engines on one database, each a client and a worker in one, against one engine",
            (
                *_one_and_two("one_step", "one-step: one engine /s", "two engines /s"),
                *_one_and_two("ten_steps", "ten-step: one engine, steps/s", "two engines, steps/s"),
                *_one_and_two("calls", "calls to 1,000 machines: one engine /s", "two engines, calls/s"),
            ),
            several.measure,
        ),
        Workload(
            "w18",
            "20,000 one-step processes by one call of start_many, against a closed loop",
            (
                Figure("loop_per_s", "closed loop /s"),
                Figure("processes_per_s", "start_many /s"),
                Figure("ratio", "× the loop", 2),
                Figure("peak_rss_mib", "peak RSS MiB"),
            ),
            _simple("w18"),
        ),
        Workload(
            "w19",
            f"20,000 processes with {HISTORY} events each, woken by signals, none of them in memory",
            (
                Figure("wakes_per_s", "wakes/s"),
                Figure("cpu_ms_each", "CPU ms a wake", 3),
                Figure("peak_rss_mib", "peak RSS MiB"),
            ),
            wakes_in_turn,
        ),
        Workload(
            "w20",
            "calls to 1,000 machines, to one, and one at a time; the old one has 1,000,000 calls behind it",
            (
                Figure("calls_per_s", "1,000 machines: calls/s"),
                Figure("cpu_ms_each", "CPU ms each", 3),
                Figure("one_per_s", "one machine: calls/s"),
                Figure("p50_ms", "idle p50 ms", 2),
                Figure("ratio", "p50 of an old one × a young one", 2),
                Figure("first_ms", "first call to the old one, ms", 2),
            ),
            _old_machine,
        ),
        Workload(
            "w21",
            "100,000 schedules due at one instant",
            (
                Figure("put_per_s", "schedules put /s"),
                Figure("occurrences_per_s", "occurrences/s"),
                Figure("last_s", "last began s after"),
                Figure("peak_rss_mib", "peak RSS MiB"),
            ),
            _simple("w21", seconds=W21_SECONDS),
        ),
        Workload(
            "w22",
            "100,000 failed processes repaired by one operation",
            (
                Figure("found_per_s", "found /s"),
                Figure("grouped_per_s", "by cause /s"),
                Figure("tried_per_s", "dry run /s"),
                Figure("tried_cpu_ms", "dry run: CPU ms each", 3),
                Figure("commands_per_s", "commanded /s"),
                Figure("cpu_ms_each", "CPU ms each", 3),
                Figure("server_cpu_ms", "server CPU ms each", 3),
                Figure("peak_rss_mib", "peak RSS MiB"),
                Figure("p99_ratio", "p99 of starts, × quiet", 1),
                Figure("repaired_per_s", "run to the end /s"),
                Figure("verified", "past the break"),
                Figure("miscounted", "miscounted after a kill"),
            ),
            _repair,
        ),
        Workload(
            "w23",
            f"a call to a machine, idle, each sync of the disk {SLOW_SYNC_MS:g} ms longer",
            LATENCY,
            _simple("w23"),
            sync_ms=SLOW_SYNC_MS,
        ),
        Workload(
            "w24",
            f"a sequential step as in W3, each sync of the disk {SLOW_SYNC_MS:g} ms longer",
            LATENCY,
            _simple("w3"),
            sync_ms=SLOW_SYNC_MS,
        ),
    )
}
