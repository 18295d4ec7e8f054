"""The same random operations on both stores and on the model: the same answers, the same rows, and no law broken."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from msgspec import json
from msgspec.structs import replace

from perdure.kernel.process import Process
from perdure.kernel.soundness import unsound
from perdure.kernel.worker import WorkerRow
from perdure.store.base import Search, Store
from perdure.testing.conformance import Ground, Trial
from perdure.testing.model import Model
from tests.store.script import Line, Script

STEPS = 400
SEEDS = (*range(6), 16, 19)
"""The last two visit suspects, which few do."""
EXPECTED_PROBES = frozenset(
    {
        "start created", "start already exists", "start conflict", "start refused", "start again",
        "send delivered", "send duplicate", "send finished", "send not found", "send again",
        "commit applied", "commit refused", "commit read first", "commit early", "commit again",
        "children applied", "children refused", "children read first", "children early",
        "messages out applied", "messages out refused", "messages out read first", "messages out early",
        "letter brought applied", "letter brought refused", "letter brought read first",
        "a child's answer", "a child's answer not applied",
        "claimed", "takeover", "suspects", "pruned",
        "overdue orphaned", "overdue lapsed", "overdue expired", "overdue idle", "overdue owned", "overdue unhosted",
    }
)  # fmt: skip
"""What must have happened at least once, or the scripts prove less than they seem to."""


class Actor:
    """One store that plays a script and is compared with the model after each line."""

    def __init__(self, ground: Ground, store: Store) -> None:
        self.trial = Trial(ground, store)
        self.store = store
        self.name = type(store).__name__

    async def play(self, line: Line, model: Model) -> None:
        """Play one line; compare the answer and everything that it may have changed, and check the laws there."""
        if line.verb == "advance":
            answer: Any = await self.trial.time.advance(*line.arguments)
        else:
            answer = await getattr(self.store, line.verb)(*line.arguments)
        assert plain(answer) == plain(line.answer), (self.name, line.verb, line.arguments)
        await self.compare(line.touched, model)

    async def compare(self, processes: Iterable[bytes], model: Model) -> None:
        """Compare rows, histories and inboxes with the model's, and hold each against the laws."""
        for process in processes:
            if process not in model.rows:
                assert await self.store.search(Search(ids=(process,))) == []
                continue
            whole = await self.trial.whole(process)
            assert plain(whole.process) == plain(model.rows[process])
            assert list(whole.events) == model.history(process)
            assert list(whole.messages) == model.inbox(process)
            run = model.events.get((process, whole.process.run), [])
            assert unsound(whole.process, run, whole.messages, model.now) == []

    async def end(self, model: Model) -> None:
        """Compare all that there is."""
        everything = await self.store.search(Search(limit=100_000))
        newest = sorted(model.rows.values(), key=lambda row: row.id, reverse=True)
        assert plain(everything) == plain(newest)
        await self.compare(model.rows, model)
        workers = sorted(await self.store.workers(ended=True), key=lambda worker: worker.id)
        assert plain(workers) == plain(sorted(model.workers.values(), key=lambda worker: worker.id))


def plain(answer: Any) -> Any:
    """An answer without what must differ: a worker's lock, and how the JSON of attributes is written."""
    if isinstance(answer, list | tuple):
        return [plain(one) for one in answer]
    if isinstance(answer, Process) and answer.attributes is not None:
        return replace(answer, attributes=json.encode(json.decode(answer.attributes), order="sorted"))
    if isinstance(answer, WorkerRow):
        return replace(answer, locked=False, lock_free=False)
    return answer


async def _both(grounds: list[Ground], seed: int) -> Script:
    script = Script(seed)
    stores = [ground.store() for ground in grounds]
    for store in stores:
        await store.open()
    try:
        actors = [Actor(ground, store) for ground, store in zip(grounds, stores, strict=True)]
        for _ in range(STEPS):
            line = script.next()
            for actor in actors:
                await actor.play(line, script.model)
        for actor in actors:
            await actor.end(script.model)
    finally:
        for store in stores:
            await store.close()
    return script


@pytest.mark.parametrize("seed", [SEEDS[0], *(pytest.param(seed, marks=pytest.mark.long) for seed in SEEDS[1:])])
async def test_the_same_script_has_the_same_answers_and_rows_on_every_store(grounds: list[Ground], seed: int) -> None:
    await _both(grounds, seed)


def test_the_scripts_visit_every_verdict() -> None:
    seen: set[str] = set()
    for seed in SEEDS:
        script = Script(seed)
        for _ in range(STEPS):
            script.next()
        seen |= script.probes
    assert EXPECTED_PROBES - seen == set()


@pytest.mark.parametrize("seed", range(20))
def test_the_model_itself_breaks_no_law(seed: int) -> None:
    script = Script(seed)
    for _ in range(STEPS):
        line = script.next()
        for process in line.touched:
            row = script.model.rows.get(process)
            if row is not None:
                events = script.model.events.get((row.id, row.run), [])
                assert unsound(row, events, script.model.inbox(row.id), script.model.now) == []
