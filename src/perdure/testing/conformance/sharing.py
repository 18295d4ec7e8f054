"""A claim is shared out among queues with limits, kinds with limits and all else, however little it asks for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from perdure.kernel.commit import Start
from perdure.kernel.kind import KIND_MARK
from perdure.kernel.queue import Queue
from perdure.testing.conformance.trial import Trial, only

QUEUES = ("@bank", "@airport", "order")
KINDS = ("mail", "invoice", "order")


class Sharing:
    """Claims of several kinds of work, of each of which much or nothing is due."""

    async def _waiting(self, trial: Trial, number: int, *kinds: str, **fields: Any) -> None:
        """So many of each kind are due."""
        for kind in kinds:
            await trial.store.start([Start(trial.process(kind=kind, code="", **fields)) for _ in range(number)])

    async def _limited(self, trial: Trial, *names: str) -> None:
        """These queues, or kinds, have limits which leave room for all that is due."""
        await trial.store.records(Queue, [Queue(name, 1, concurrency=1000) for name in names])

    async def _shared_out(self, trial: Trial, kinds: Sequence[str], claims: int, **fields: Any) -> Counter[str]:
        """Of which kinds so many claims of one took something, one every 10 ms; none took nothing."""
        worker = await trial.worker()
        taken: Counter[str] = Counter()
        for _ in range(claims):
            answer = await trial.claim(worker, 1, hosted=tuple((kind, "") for kind in kinds), **fields)
            taken[only(answer.claimed).process.kind] += 1
            await trial.time.advance(0.01)
        return taken

    async def test_queues_with_limits_and_all_else_get_equal_parts_of_a_claim(self, trial: Trial) -> None:
        worker = await trial.worker()
        await self._limited(trial, "bank", "airport")
        await self._waiting(trial, 9, *QUEUES)
        claim = await trial.claim(worker, 9, hosted=tuple((kind, "") for kind in QUEUES))
        assert Counter(one.process.kind for one in claim.claimed) == dict.fromkeys(QUEUES, 3)

    async def test_queues_with_limits_and_all_else_take_turns_where_each_claim_asks_for_one(self, trial: Trial) -> None:
        await self._limited(trial, "bank", "airport")
        await self._waiting(trial, 30, *QUEUES)
        taken = await self._shared_out(trial, QUEUES, 30)
        assert min(taken[kind] for kind in QUEUES) >= 8

    async def test_what_one_queue_leaves_of_a_claim_another_or_all_else_gets(self, trial: Trial) -> None:
        await self._limited(trial, "bank", "airport")
        for kind in QUEUES:
            await self._waiting(trial, 9, kind)
            assert await self._shared_out(trial, QUEUES, 9) == {kind: 9}

    async def test_suspects_of_queues_with_limits_and_all_others_take_turns(self, trial: Trial) -> None:
        await self._limited(trial, "bank", "airport")
        await self._waiting(trial, 30, *QUEUES, deaths=2)
        taken = await self._shared_out(trial, QUEUES, 30, alone=True)
        assert min(taken[kind] for kind in QUEUES) >= 8

    async def test_kinds_with_limits_and_all_others_take_turns_where_each_claim_asks_for_one(
        self, trial: Trial
    ) -> None:
        await self._limited(trial, KIND_MARK + "mail", KIND_MARK + "invoice")
        await self._waiting(trial, 30, *KINDS)
        taken = await self._shared_out(trial, KINDS, 30)
        assert min(taken[kind] for kind in KINDS) >= 8

    async def test_what_one_kind_leaves_of_a_claim_another_gets(self, trial: Trial) -> None:
        await self._limited(trial, KIND_MARK + "mail", KIND_MARK + "invoice")
        for kind in KINDS:
            await self._waiting(trial, 9, kind)
            assert await self._shared_out(trial, KINDS, 9) == {kind: 9}

    async def test_queues_and_kinds_with_limits_take_turns_with_each_other(self, trial: Trial) -> None:
        await self._limited(trial, "bank", KIND_MARK + "mail", KIND_MARK + "invoice")
        await self._waiting(trial, 60, "@bank", *KINDS)
        taken = await self._shared_out(trial, ("@bank", *KINDS), 60)
        assert 26 <= taken["@bank"] <= 34 and min(taken[kind] for kind in KINDS) >= 6

    async def test_a_queue_whose_kind_of_work_is_alone_gets_the_whole_claim(self, trial: Trial) -> None:
        worker = await trial.worker()
        await self._limited(trial, "bank", KIND_MARK + "mail")
        await self._waiting(trial, 9, "@bank", "mail")
        for kind in ("@bank", "mail"):
            assert len((await trial.claim(worker, 9, hosted=((kind, ""),))).claimed) == 9
