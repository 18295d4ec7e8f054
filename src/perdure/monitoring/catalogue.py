"""The catalogue of all metrics: name, kind, labels and meaning; the reference table and a test are made from it."""

from __future__ import annotations

from typing import Literal, NamedTuple

from perdure.telemetry import COUNTERS

RECOVERIES = {
    "lease_lapsed": ("takeovers", "leases_lapsed"),
    "worker_ended": ("orphans_freed",),
    "deadline": ("processes_expired",),
    "idle": ("processes_idle",),
    "signal_overlooked": ("letters_overlooked",),
    "set_back": ("processes_set_back",),
}
"""What a process was rescued from, with the counters that tell of it: the label ``cause`` of recoveries."""

REQUESTS = {
    "claim": "scan: due processes are taken, with their histories",
    "start": "new processes are stored",
    "commit": "complete: turns are written",
    "send": "notify: messages to processes are written",
    "beat": "heartbeats",
    "sweep": "rounds in which what is stuck is looked for",
}
"""The label ``request`` of the store's times, as the engine calls them."""


class Metric(NamedTuple):
    """One metric. The first ``open`` of its labels are names that programs make, whose number is bounded."""

    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    open: int
    meaning: str


LABELLED: dict[str, Metric] = {
    "perdure_processes_started": Metric("counter", ("kind",), 1, "Processes started here, children too."),
    "perdure_process_wait_seconds": Metric(
        "histogram", ("kind",), 1, "From the start of a process, with its delay if it has one, to its first turn here."
    ),
    "perdure_process_duration_seconds": Metric(
        "histogram", ("kind", "status"), 1, "From the start of a process to its end, which was written here."
    ),
    "perdure_processes_stopped": Metric(
        "counter", ("kind", "status"), 1, "Processes that became broken or held here, and wait for a person."
    ),
    "perdure_processes_revived": Metric(
        "counter", ("kind",), 1,
        "Processes freed here, or taken over, whose worker had ended or lost the lease; the kind @bank is a queue.",
    ),
    "perdure_queue_in": Metric("counter", ("queue",), 1, "Queued steps put into a queue here."),
    "perdure_queue_out": Metric("counter", ("queue", "status"), 1, "Queued steps of a queue that ended here."),
    "perdure_queue_wait_seconds": Metric(
        "histogram", ("queue",), 1, "From the moment when a queued step was asked for to its first attempt here."
    ),
    "perdure_queue_duration_seconds": Metric(
        "histogram", ("queue", "status"), 1, "From the moment when a queued step was asked for to its end."
    ),
    "perdure_step_duration_seconds": Metric(
        "histogram", ("step", "queue", "outcome"), 2, "Attempts of a step: how long each took, and how it ended."
    ),
    "perdure_step_timeouts": Metric(
        "counter", ("step", "queue"), 2, "Attempts of a step that ran over their deadline."
    ),
    "perdure_breakers_opened": Metric(
        "counter", ("breaker",), 1, "Times that a circuit breaker opened, again after a probe too, as written here."
    ),
    "perdure_turn_duration_seconds": Metric(
        "histogram", ("phase",), 0, "Prepare: a history is replayed. Process: one turn for each batch written."
    ),
    "perdure_store_request_duration_seconds": Metric(
        "histogram", ("request",), 0, "Requests to the database: claim, start, commit, send, beat; rounds of sweeps."
    ),
    "perdure_sweep_passes": Metric("counter", ("sweep",), 0, "Passes here of a sweep, which looks for what is stuck."),
    "perdure_sweep_errors": Metric("counter", ("sweep",), 0, "Passes here of a sweep that ended by an error."),
    "perdure_sweep_rows_seen": Metric("counter", ("sweep",), 0, "Rows that a sweep has read here."),
    "perdure_sweep_rows_changed": Metric(
        "counter", ("sweep",), 0, "Rows that a sweep has freed, ended, removed or reported here."
    ),
    "perdure_sweep_rows_left": Metric(
        "counter", ("sweep",), 0, "Rows that a sweep has left alone here: recovery was paused, or its budget spent."
    ),
    "perdure_recoveries": Metric("counter", ("cause",), 0, "Processes rescued here, by what had stopped them."),
    "perdure_worker_slots": Metric("gauge", (), 0, "How many processes this worker may hold at once."),
    "perdure_worker_slots_free": Metric("gauge", (), 0, "How many more processes this worker could hold now."),
    "perdure_worker_held": Metric("gauge", (), 0, "Processes that this worker holds."),
    "perdure_worker_last_poll_timestamp_seconds": Metric(
        "gauge", (), 0, "When this worker last looked for due work, by the store's clock; 0 before that."
    ),
    "perdure_store_clock_ahead_seconds": Metric(
        "gauge", (), 0, "How far the store's time is ahead of its machine's clock."
    ),
    "perdure_queue_depth": Metric("gauge", ("queue",), 1, "Queued steps of a queue that no worker has taken."),
    "perdure_queue_running": Metric("gauge", ("queue",), 1, "Queued steps of a queue that workers hold."),
    "perdure_queue_delayed": Metric(
        "gauge", ("queue",), 1, "Of the depth: those that are not due yet, mostly between two attempts."
    ),
    "perdure_queue_oldest_seconds": Metric(
        "gauge", ("queue",), 1, "For how long the longest due queued step of a queue has waited for a worker."
    ),
    "perdure_queue_workers": Metric("gauge", ("queue",), 1, "Living workers that serve a queue; 0: nobody polls it."),
    "perdure_breaker_state": Metric(
        "gauge", ("breaker",), 1, "How a circuit breaker stands in the database: 0 closed, 1 half-open, 2 open."
    ),
}  # fmt: skip
"""What is measured beside the counters of the engine, and what is read when it is asked for."""

METRICS: dict[str, Metric] = {
    **LABELLED,
    **{
        f"perdure_{name}": Metric("counter", (), 0, f"{text[0].upper()}{text[1:]}.")
        for name, text in COUNTERS.items()
        if f"perdure_{name}" not in LABELLED
    },
}
"""All metrics by name; in Prometheus a counter's name ends with ``_total``."""
