"""Counters and durations of the engine, by name, in memory; exporters read :meth:`Telemetry.snapshot`."""

from __future__ import annotations

from collections.abc import Iterable

COUNTERS = {
    "starts": "processes started here",
    "starts_existing": "starts answered with a process that was there already",
    "turns": "turns run",
    "commits": "commits applied",
    "batches": "transactions that carried commits, starts or sends",
    "commits_refused": "late answers refused by the fence",
    "commits_busy": "records set aside for a moment because a row was locked, or a timer not due yet",
    "commits_early": "records set aside because a timer was not due yet by the store's clock",
    "commits_read_first": "ends not written because a message had arrived that the process had not heard",
    "commits_resent": "batches sent again because their outcome was unknown",
    "batches_halved": "batches halved because the database refused a record in them",
    "claims": "processes claimed",
    "cache_hits": "processes claimed that were still in memory and went on without a replay",
    "cache_misses": "processes claimed whose history was replayed",
    "processes_handed_over": "times that a process was left to a newer worker, which understands all of it",
    "processes_revived": "processes freed or taken over from a worker that had ended, or had let the lease lapse",
    "takeovers": "processes claimed whose lease had lapsed",
    "completed": "processes completed here",
    "failed": "processes failed here",
    "workflow_retries": "times that the code of a process failed here and is tried again, by its workflow's retry",
    "cancelled": "processes cancelled here",
    "broken": "processes parked as broken here",
    "held": "processes held here",
    "steps": "step attempts started",
    "step_failures": "step attempts that failed",
    "alerts": "facts of which people were told: see perdure.Alert",
    "step_alerts": "thresholds of steps at which their retry policies have told people",
    "retries_put_off": "retries that were due and had to wait, because their step's budget was spent",
    "attempts_barred": "step attempts that were due and had to wait, because the breaker of their step was open",
    "breakers_changed": "times that this worker opened, half-opened or closed a breaker",
    "breakers_opened": "times that this worker opened a breaker, again after a probe too",
    "leaderships": "times that this program has begun to lead in something",
    "leaderships_lost": "times that it had to stop: its lease could not be renewed, was released, or the engine closed",
    "step_timeouts": "step attempts that ran over their deadline",
    "cells_started": "child OS processes started for hard steps",
    "cells_killed": "child OS processes killed with the attempt in them: over its deadline, cancelled, or never begun",
    "cells_crashed": "child OS processes of hard steps that died by themselves",
    "shortages": "times that the system refused this worker a thread, a descriptor, memory or a child OS process",
    "attempts_put_off": "step attempts tried again and not counted, because this worker was short of something",
    "processes_put_off": "processes handed back because this worker was short of something",
    "undos_spent": "undos that failed at their last attempt, so that their process is parked as broken",
    "late_results": "results of steps that arrived after their attempt had ended",
    "timers": "timers fired",
    "messages": "messages delivered to processes",
    "calls_brought": "calls heard by a process that was held here before they were stored, by the commit of their turn",
    "calls_recalled": "of these, calls for which a process that rested in memory here was claimed first",
    "calls_turned_away": "calls that were to be heard so and were not, or not written: they were sent like all others",
    "leases_lost": "processes dropped because their lease was lost or could not be renewed",
    "workers_dead": "workers found dead (lock free, twice, without a beat)",
    "workers_silent": "workers found silent (no beat in time)",
    "incarnations_renewed": "times that this worker was ended by others and went on under a new id",
    "orphans_freed": "processes freed from an ended worker",
    "leases_lapsed": "processes freed whose lease had lapsed and whose kind is not hosted here",
    "processes_expired": "processes ended over their deadline",
    "processes_idle": "idle processes checked",
    "letters_overlooked": "processes found waiting although their signal has arrived: an old worker overlooked it",
    "sweep_passes": "passes of sweeps, which look for what is stuck",
    "sweep_errors": "passes of sweeps that ended by an error",
    "sweep_rows_seen": "rows that sweeps have read",
    "sweep_rows_changed": "rows that sweeps have freed, ended, removed or reported",
    "sweep_rows_left": "rows that sweeps have left alone, since recovery was paused or its budget spent",
    "processes_begun_again": "processes restarted by a rule, as they cannot be replayed or nobody hosts their code",
    "records_unsound": "findings of the soundness check",
    "processes_unhosted": "processes due that no live worker hosts",
    "processes_overloaded": "processes due for a minute whose hosts are all busy, or whose queue is full or blocked",
    "queues_unpolled": "times that queued steps were found due for a minute in a queue that no live worker serves",
    "processes_set_back": "processes that a fail-over or a restored backup set back behind a state seen before",
    "clocks_put_back": "times that the clock of the store's machine was found put back: the store's time goes on ahead",
    "processes_pruned": "finished processes removed by retention",
    "processes_archived": "finished processes written into an archive before they are removed",
    "runs_pruned": "former runs of unfinished processes removed by retention",
    "suspects": "processes that became suspects by the death of a worker",
    "suspects_alone": "quarantine workers started",
    "suspects_cleared": "suspects cleared: what was in flight when their worker died has been recorded",
    "loops_blocked": "times that the event loop was found blocked",
    "loops_hung": "times that it was blocked until the lease was lost",
    "store_errors": "requests to the store that failed",
    "overloaded": "starts and signals refused because too many waited to be written",
}
"""Every counter with its meaning; a test holds the names used in the code against this table."""


class Telemetry:
    """What one engine has counted and measured since it was made."""

    def __init__(self) -> None:
        self.counters: dict[str, int] = dict.fromkeys(COUNTERS, 0)
        self.seconds: dict[str, list[float]] = {}

    def count(self, name: str, by: int = 1) -> None:
        """Raise the counter ``name`` (one of :data:`COUNTERS`)."""
        self.counters[name] += by

    def revived(self, kinds: Iterable[str]) -> None:
        """Processes of these kinds, one each, were revived; a queue's tasks are of the kind ``@bank``."""
        self.counters["processes_revived"] += sum(1 for _ in kinds)

    def breaker_opened(self, name: str) -> None:
        """A breaker of that name has opened, and it was this worker that has written so."""
        self.count("breakers_opened")

    def swept(self, sweep: str, seen: int, changed: int, left: int) -> None:
        """One pass of a sweep has read so many rows, changed so many, and left so many alone."""
        self.count("sweep_passes")
        self.count("sweep_rows_seen", seen)
        self.count("sweep_rows_changed", changed)
        self.count("sweep_rows_left", left)

    def sweep_failed(self, sweep: str) -> None:
        """One pass of a sweep has ended by an error."""
        self.count("sweep_errors")

    def took(self, name: str, seconds: float) -> None:
        """Record that one ``name`` (claim, replay, commit, start, send, beat, sweep) took so many seconds."""
        entry = self.seconds.get(name)
        if entry is None:
            entry = self.seconds[name] = [0, 0.0, 0.0]
        entry[0] += 1
        entry[1] += seconds
        entry[2] = max(entry[2], seconds)

    def snapshot(self) -> dict[str, float]:
        """Every counter by name, and ``<name>_count``, ``<name>_seconds`` and ``<name>_seconds_max`` of durations."""
        figures: dict[str, float] = dict(self.counters)
        for name, (count, total, longest) in self.seconds.items():
            figures[f"{name}_count"] = count
            figures[f"{name}_seconds"] = total
            figures[f"{name}_seconds_max"] = longest
        return figures
