"""A flow that passes through the same states for years: it loads as fast as a new one, and its row grows no larger."""

from __future__ import annotations

import pytest

from perdure import Engine, Handle, flow, limits
from perdure.kernel.checkpoint import unfinished
from tests.flows.transfer import ask, note, sent
from tests.runtime.conftest import Open


class Lamp(flow.Flow):
    """It is on or off, asks for current each time it goes on, and notes each time it goes off."""

    dark = flow.State(timeout=100_000)
    bright = flow.State(timeout=100_000)
    gone = flow.State(terminal=True)

    @flow.init
    def made(self) -> None:
        pass

    @flow.event
    def pressed(self) -> None:
        pass

    @flow.event
    def lit(self) -> None:
        pass

    @flow.event
    def broken(self) -> None:
        pass

    @flow.request(timeout=50_000, default=lit)
    async def current(self, id: str) -> None:
        await ask("works", id)

    @flow.action
    async def count(self) -> None:
        await note("dark")

    behaviour = flow.table(
        flow.on(made).to(dark),
        flow.on(pressed, in_=dark).to(bright).do(current),
        flow.on(lit),
        flow.on(pressed, in_=bright).to(dark).do(count).stop(current),
        flow.any_of(broken, current.timed_out, dark.timed_out, bright.timed_out).to(gone),
    )


async def used(engine: Engine, times: int) -> Handle[object]:
    """A lamp that was switched so often, each time answered by the works, and is dark again."""
    handle = await engine.start(Lamp.made)
    for _ in range(times):
        assert await handle.call(Lamp.pressed) == "bright"
        _, id = sent[-1]
        await handle.signal(Lamp.answer, id, "OK")
        await handle.signal(Lamp.answer, id, "LATE")
        assert await handle.call(Lamp.pressed) == "dark"
    return handle


async def test_an_old_flow_is_loaded_as_fast_as_a_new_one(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FOLDED_TURNS", 40)
    engine, _ = await opened(work=True, workflows=[Lamp.made])
    young, old = await used(engine, 2), await used(engine, 40)
    await engine.close()
    other, _ = await opened(work=True, workflows=[Lamp.made])
    rows = [await other.row(one.id) for one in (young, old)]
    assert rows[1].run > 3, "it has begun anew several times"
    assert rows[1].events < 4 * 40, "the history of this run is short, however many there were"
    histories = [await other.process(one.id).history() for one in (young, old)]
    replayed = [
        sum(event.turn > 0 for event in unfinished(row, history)) for row, history in zip(rows, histories, strict=True)
    ]
    assert replayed[1] <= replayed[0] + 2, "what has ended is not replayed"
    states = [row.state or b"" for row in rows]
    assert states[1].count(b'"LATE"') == limits.UNEXPECTED_EVENTS, "of what was unexpected the last ones are kept"
    assert len(states[1]) - len(states[0]) < 250 * limits.UNEXPECTED_EVENTS
    for one in (young, old):
        assert await other.process(one.id).call(Lamp.pressed) == "bright"
    assert other.telemetry.counters["cache_misses"] == 2
