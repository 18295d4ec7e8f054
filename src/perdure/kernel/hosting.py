"""Hosting: which live workers could take a process, when one last could, and the command that starts one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from msgspec import Struct

from perdure.kernel.child import QUEUE_MARK, is_task
from perdure.kernel.worker import Hang, Offer, Pair, WorkerRow


class Hosting(Struct, frozen=True):
    """Who hosts one kind and version: the live workers, and ``last``, when the last one of the others was there.

    ``last`` is None if no worker that hosted it is remembered (an ended worker is, for a day). ``others`` are the other
    versions of the kind (of a queue: the labels) that live workers host.
    """

    alive: tuple[WorkerRow, ...] = ()
    last: int | None = None
    others: frozenset[str] = frozenset()


def lives(worker: WorkerRow, now: int) -> bool:
    """Whether a worker has not ended, and nothing speaks for its death: it beats, and its lock is held."""
    if worker.ended_at is not None or (worker.locked and worker.lock_free):
        return False
    return worker.due_at is None or worker.due_at >= now


def hosting(kind: str, code: str, workers: Iterable[WorkerRow], now: int) -> Hosting:
    """Who hosts this kind and version at ``now``, among workers that live or have ended."""
    alive: list[WorkerRow] = []
    last: int | None = None
    others: set[str] = set()
    for worker in workers:
        hosted = _hosted(worker.hosts)
        living = lives(worker, now)
        if living:
            others.update(version for own, version in hosted if own == kind and version != code)
        if (kind, code) not in hosted:
            continue
        if living:
            alive.append(worker)
        else:
            last = max(last or 0, worker.ended_at or worker.due_at or now)
    return Hosting(tuple(alive), last, frozenset(others))


@lru_cache(maxsize=256)
def _hosted(hosts: bytes) -> frozenset[Pair]:
    return Offer.decode(hosts).hosted


def gone(worker: WorkerRow, now: int) -> str:
    """What speaks for it that a worker does not live, in words; empty if it lives."""
    if worker.ended_at is not None:
        return "has died" if worker.died else "has ended"
    if worker.locked and worker.lock_free:
        return "has died: its lock is free"
    return "" if lives(worker, now) else "is silent: its heartbeat is overdue"


def hang_of(worker: WorkerRow | None, process: bytes) -> Hang | None:
    """The evidence that code of this process blocks the worker's event loop, if there is some."""
    hang = None if worker is None else Hang.read(worker.hang)
    return hang if hang is not None and hang.process == process else None


def wanted(kind: str, code: str) -> str:
    """What a worker would have to do to take such a process: ``hosts workflow 'order' version '2'``."""
    if is_task(kind):
        label = f" with the label {code!r}" if code else ""
        return f"serves queue {kind.removeprefix(QUEUE_MARK)!r}{label}"
    return f"hosts workflow {kind!r}" + (f" version {code!r}" if code else "")


def start_command(kind: str, code: str = "") -> str:
    """The command that starts such a worker."""
    if not is_task(kind):
        return "perdure worker MODULE"
    label = f" --labels {code}" if code else ""
    return f"perdure worker MODULE --queues {kind.removeprefix(QUEUE_MARK)}{label}"


def names(workers: Sequence[WorkerRow], most: int = 5) -> str:
    """The names of some workers; if there are more, how many more."""
    more = f" and {len(workers) - most:,} more" if len(workers) > most else ""
    return ", ".join(worker.name for worker in workers[:most]) + more
