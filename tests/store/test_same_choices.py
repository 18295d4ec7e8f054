"""The same random queues on both stores: the same tasks are taken in the same order, and no limit is passed."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from perdure.clock import SECOND
from perdure.kernel.claim import Claim
from perdure.kernel.commit import Start
from perdure.kernel.process import Process
from perdure.kernel.queue import Queue
from perdure.store.base import Store
from perdure.testing.conformance import Ground, Trial
from perdure.testing.conformance.trial import LEASE, finished

CLAIMS = 8
HOSTED = tuple((kind, code) for kind in ("@bank", "@airport", "@free", "order") for code in ("", "x"))


class Chance:
    """What a seed makes of a queue, its tasks and its claims."""

    def __init__(self, seed: int) -> None:
        self.draw = Random(seed)
        self.seed = seed
        self.limits = Queue(
            "bank",
            concurrency=self.draw.choice((None, 1, 5, 20)),
            share_concurrency=self.draw.choice((None, None, 2)),
            rate=self.draw.choice((None, None, 7)),
            per=3600 * SECOND,
        )
        self.others = Queue("airport", concurrency=self.draw.choice((None, 3, 100)))

    def tasks(self, now: int) -> list[Process]:
        """Tasks of several queues, priorities, shares and costs; some are suspects, some due later."""
        draw, many = self.draw, range(self.draw.randint(1, 120))
        shares = (None, *(f"tenant {n}" for n in range(draw.choice((0, 1, 8, 70)))))
        return [
            Process(
                self.seed.to_bytes(8, "big") + n.to_bytes(8, "big"),
                draw.choice(("@bank", "@bank", "@airport", "@free", "order")),
                None,
                b"{}",
                code=draw.choice(("", "x")),
                share=draw.choice(shares),
                cost=draw.choice((1, 1, 1, 2, 9)),
                priority=draw.choice((0, 4, 4, 9)),
                deaths=draw.choice((0, 0, 0, 2)),
                alone_deaths=draw.choice((0, -2, -5)),
                due_at=now + draw.choice((-2, -1, 0, 0, 20)) * SECOND,
            )
            for n in many
        ]


async def _played(ground: Ground, store: Store, seed: int) -> list[Any]:
    """What the claims of one seed have taken, and whether suspects were told of."""
    chance, trial = Chance(seed), Trial(ground, store)
    worker = await trial.worker()
    await store.records(Queue, [chance.limits, chance.others])
    await store.start([Start(task) for task in chance.tasks(await trial.time.now())])
    hand: dict[bytes, Process] = {}
    told: list[Any] = []
    for number in range(CLAIMS):
        most, alone = chance.draw.choice((1, 3, 10, 100)), number % 3 == 2
        answer = await store.claim(Claim(worker, HOSTED, most, LEASE, alone))
        told.append(([one.process.id.hex() for one in answer.claimed], answer.suspects))
        hand |= {one.process.id: one.process for one in answer.claimed}
        _within(chance.limits, list(hand.values()))
        for row in sorted(hand.values(), key=lambda row: row.id)[: chance.draw.randint(0, 4)]:
            await trial.done(finished(hand.pop(row.id)))
        await trial.time.advance(chance.draw.choice((0, 1, 5)))
        if await trial.time.now() > min((row.due_at or 0 for row in hand.values()), default=1 << 62):
            break  # what lapses now is taken over, which is another test's matter
    return told


def _within(limits: Queue, rows: list[Process]) -> None:
    running: Counter[str | None] = Counter()
    for row in rows:
        if row.kind == "@bank":
            running[row.share] += limits.weight(row.cost)
    assert limits.concurrency is None or running.total() <= limits.concurrency
    assert limits.share_concurrency is None or max(running.values(), default=0) <= limits.share_concurrency


@pytest.mark.parametrize("seed", [*range(12), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(12, 40))])
async def test_the_same_tasks_are_taken_in_the_same_order_on_every_store(grounds: list[Ground], seed: int) -> None:
    played = []
    for ground in grounds:
        store = ground.store()
        await store.open()
        try:
            played.append(await _played(ground, store, seed))
        finally:
            await store.close()
    assert all(one == played[0] for one in played)
