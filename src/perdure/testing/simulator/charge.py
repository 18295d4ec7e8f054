"""Charges: what queues with a rate must pay for, counted independently of their rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perdure.kernel.process import Process
from perdure.kernel.queue import Queue


class Charges:
    """Counts what has begun of each queue since its rate was last changed, and when that is paid for."""

    def __init__(self) -> None:
        self._paid_at: dict[tuple[str, int], int] = {}

    def taken(self, queue: Queue, fresh: Sequence[Process], now: int) -> Iterator[str]:
        """What is wrong, if anything, when these tasks of a queue begin now."""
        if queue.rate is None or not fresh:
            return
        weight = sum(queue.weight(task.cost) for task in fresh)
        since = queue.name, queue.version
        paid_at = max(self._paid_at.get(since, 0), now) + -(-weight * queue.per // queue.rate)
        self._paid_at[since] = paid_at
        if paid_at > now + queue.per:
            early = (paid_at - queue.per - now) / 1_000_000
            yield f"{len(fresh)} begin {early:g} s before {queue.rate} in {queue.per} microseconds lets them"
