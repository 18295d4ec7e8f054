"""The closed vocabulary of causes: why a process does not move, or what it rightly waits for."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Diagnosis(StrEnum):
    """Why a process does not move, or what it waits for. The words are stable: programs may compare them."""

    # It moves, or waits for what it has asked for.
    ENDED = "ended"
    MOVES = "moves"
    WAITS_FOR_TIME = "waits_for_time"
    WAITS_FOR_MESSAGE = "waits_for_message"
    WAITS_FOR_CHILD = "waits_for_child"
    RETRYING = "retrying"

    # No worker takes it.
    NO_HOST_OF_KIND = "no_host_of_kind"
    NO_HOST_OF_VERSION = "no_host_of_version"
    QUEUE_NOT_POLLED = "queue_not_polled"
    QUEUE_BLOCKED = "queue_blocked"
    QUEUE_FULL = "queue_full"
    KIND_FULL = "kind_full"
    HOSTS_BUSY = "hosts_busy"
    RECOVERY_PAUSED = "recovery_paused"

    # Something is wrong with its worker.
    WORKER_LOST = "worker_lost"
    CRASHES_ITS_WORKER = "crashes_its_worker"
    HANGS_ITS_WORKER = "hangs_its_worker"
    NO_PROGRESS = "no_progress"

    # Something is wrong with what it needs.
    DEPENDENCY_DOWN = "dependency_down"
    RETRIES_SPENT = "retries_spent"
    OVER_DEADLINE = "over_deadline"
    WAITS_FOR_NOTHING = "waits_for_nothing"

    # Something is wrong with its records.
    HISTORY_MISFIT = "history_misfit"
    PAYLOAD_UNREADABLE = "payload_unreadable"
    RECORD_UNSOUND = "record_unsound"
    NEWER_RECORD = "newer_record"
    CLOCK_JUMPED = "clock_jumped"

    # It was stopped.
    HELD = "held"
    SET_BACK = "set_back"


MEANINGS: Mapping[Diagnosis, str] = {
    Diagnosis.ENDED: "it has ended, and nothing is left to do",
    Diagnosis.MOVES: "a worker runs it, or will take it in a moment",
    Diagnosis.WAITS_FOR_TIME: "it waits for a timer, or for the time of its start",
    Diagnosis.WAITS_FOR_MESSAGE: "it waits for a signal or a call, which nobody may send",
    Diagnosis.WAITS_FOR_CHILD: "it waits for a child or a queued step; if that stands still, its cause is named too",
    Diagnosis.RETRYING: "an attempt has failed, and the next one is still to come",
    Diagnosis.NO_HOST_OF_KIND: "no live worker hosts its workflow",
    Diagnosis.NO_HOST_OF_VERSION: "live workers host its workflow, but none its version of the code",
    Diagnosis.QUEUE_NOT_POLLED: "no live worker serves the queue of this queued step",
    Diagnosis.QUEUE_BLOCKED: "a person has blocked its queue",
    Diagnosis.QUEUE_FULL: "the limits of its queue let nothing more begin now",
    Diagnosis.KIND_FULL: "it waits for a place among processes of its kind, which has limits",
    Diagnosis.HOSTS_BUSY: "live workers host it, and none has taken it although it is due",
    Diagnosis.RECOVERY_PAUSED: "its worker is lost, and a person has paused automatic recovery",
    Diagnosis.WORKER_LOST: "the worker that held it is dead or silent; the next one takes it over",
    Diagnosis.CRASHES_ITS_WORKER: "workers die while they run it",
    Diagnosis.HANGS_ITS_WORKER: "its code blocks the event loop of its worker",
    Diagnosis.NO_PROGRESS: "a live worker holds it, and nothing has been recorded for long",
    Diagnosis.DEPENDENCY_DOWN: "what its step calls is down: a breaker is open, its kind is held, or many fail alike",
    Diagnosis.RETRIES_SPENT: "it has failed or is broken, and waits for attention",
    Diagnosis.OVER_DEADLINE: "its deadline has passed",
    Diagnosis.WAITS_FOR_NOTHING: "its code awaits what no step, timer or signal can bring",
    Diagnosis.HISTORY_MISFIT: "its code does not fit its recorded history",
    Diagnosis.PAYLOAD_UNREADABLE: "a payload cannot be opened: a codec or a key is missing",
    Diagnosis.RECORD_UNSOUND: "what is stored of it breaks a law, or is damaged",
    Diagnosis.NEWER_RECORD: "a newer Perdure has written something of it that this one does not know",
    Diagnosis.CLOCK_JUMPED: "it waits for a time, and the clock of the store was put back or forward",
    Diagnosis.HELD: "it is held: by a person, or since its history is too long",
    Diagnosis.SET_BACK: "a fail-over or a restored backup has set it back, so it is held",
}
"""What each means, for people."""

GOES_ON = frozenset(
    {
        Diagnosis.ENDED,
        Diagnosis.MOVES,
        Diagnosis.WAITS_FOR_TIME,
        Diagnosis.WAITS_FOR_MESSAGE,
        Diagnosis.WAITS_FOR_CHILD,
        Diagnosis.RETRYING,
        Diagnosis.WORKER_LOST,
        Diagnosis.QUEUE_FULL,
        Diagnosis.KIND_FULL,
    }
)
"""With these it goes on by itself, or by what it waits for. With all others it stands still: somebody should look."""
