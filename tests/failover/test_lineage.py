"""A fail-over that loses what was acknowledged: it is seen, told, and nothing of it is done again by itself."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from perdure.engine import Engine
from perdure.errors import ProcessNotFound, StoreUnavailable
from perdure.kernel.claim import Claim
from perdure.kernel.process import Status
from perdure.runtime.options import WorkerOptions
from perdure.store.failover import Lineage
from tests.failover.cluster import Pair
from tests.restored.passage import done, forget, gates, passage
from tests.runtime.conftest import LIMIT

pytestmark = [pytest.mark.kill, pytest.mark.timeout(120)]
QUICK = WorkerOptions(lease_seconds=1.5, beat_seconds=0.3)


@pytest.fixture(scope="module")
def clusters() -> Iterator[Pair]:
    """A primary and a standby that confirms nothing."""
    with Pair(synchronous=False, settings=["fsync=off"]) as pair:
        yield pair


@pytest.fixture
def pair(clusters: Pair) -> Pair:
    """The two, the standby made anew if it was used up."""
    forget()
    if clusters.dead is not None:
        clusters.follow()
    return clusters


@pytest.fixture
async def crew(pair: Pair) -> AsyncIterator[tuple[Engine, Engine]]:
    """A worker that starts and hosts processes, and a second one that would take over what it leaves."""
    url = pair.url(pair.primary.fresh_database().rpartition("/")[2])
    engines = [Engine(url, work=True, workflows=[passage], options=QUICK) for _ in range(2)]
    for engine in engines:
        await engine.__aenter__()
    yield engines[0], engines[1]
    for engine in engines:
        await engine.close(0)


async def soon(true: Any) -> None:
    """Look again and again until it is so."""
    async with asyncio.timeout(LIMIT):
        while not await true():
            await asyncio.sleep(0.01)


async def row(engine: Engine, id: str) -> Any:
    try:
        return await engine.row(id)
    except StoreUnavailable:
        return None


async def crossed_in_vain(pair: Pair, crew: tuple[Engine, Engine]) -> tuple[Any, Any, Any]:
    """One process is on its way when the standby is cut off; it pays, which is acknowledged and lost. A second one too.

    The third has done all that it did before.
    """
    here, _ = crew
    gates["calm"].set()
    calm, paying = [await here.start(passage, who) for who in ("calm", "paying")]
    await soon(lambda: paid("calm"))
    await soon(lambda: waits(here, calm.id))
    await asyncio.to_thread(pair.sever)
    gates["paying"].set()
    gates["lost"].set()
    await soon(lambda: paid("paying"))
    lost = await here.start(passage, "lost")
    await soon(lambda: paid("lost"))
    await soon(lambda: waits(here, paying.id))
    await soon(lambda: waits(here, lost.id))
    await asyncio.to_thread(pair.fail_over)
    return calm, paying, lost


async def paid(who: str) -> bool:
    return done["paid", who] > 0


async def waits(engine: Engine, id: str) -> bool:
    return bool(await row(engine, id)) and (await row(engine, id)).awaiting is not None


async def test_what_an_asynchronous_failover_set_back_is_held_and_told_and_never_done_again_by_itself(
    pair: Pair, crew: tuple[Engine, Engine]
) -> None:
    here, there = crew
    calm, paying, lost = await crossed_in_vain(pair, crew)

    async def held() -> bool:
        found = await row(here, paying.id)
        return found is not None and found.status is Status.HELD

    async def told() -> bool:
        return here.metrics()["processes_set_back"] == 2

    await soon(held)
    await soon(told)
    with pytest.raises(ProcessNotFound):
        await there.row(lost.id)
    # Whatever was not lost goes on, with no hand.
    await there.process(calm.id).signal("go")
    assert await there.process(calm.id).result(timeout=LIMIT) == "calm"
    assert done == {("paid", "calm"): 1, ("paid", "paying"): 1, ("paid", "lost"): 1}
    status = await there.process(paying.id).status()
    assert "set back" in str(status.error), "a person sees why it is held"
    # A person has looked, and lets it go on: it pays again, under the same key.
    await there.process(paying.id).resume(who="ann")
    await there.process(paying.id).signal("go")
    assert await there.process(paying.id).result(timeout=LIMIT) == "paying"
    assert done["paid", "paying"] == 2


@pytest.mark.long
async def test_without_what_the_worker_knows_it_would_be_done_again(
    pair: Pair, crew: tuple[Engine, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def blind(lineage: Lineage, connection: Any) -> None:
        return None

    monkeypatch.setattr(Lineage, "_compare", blind)
    await crossed_in_vain(pair, crew)

    async def paid_again() -> bool:
        return done["paid", "paying"] == 2

    await soon(paid_again)


@pytest.mark.long
async def test_whoever_hosts_no_sweep_may_still_give_commands(pair: Pair, crew: tuple[Engine, Engine]) -> None:
    here, _ = crew
    gates["calm"].set()
    gates["lost"].set()
    async with Engine(here.store.url, migrate=True) as person:
        calm = await person.start(passage, "calm")
        await soon(lambda: waits(person, calm.id))
        await asyncio.to_thread(pair.sever)
        lost = await person.start(passage, "lost")
        await asyncio.to_thread(pair.fail_over)

        found = person.store.backend.failover()

        async def missed() -> bool:
            return lost.id_bytes in found.set_back

        await soon(lambda: row(person, calm.id))
        await soon(missed)
        seizure = Claim(person.machine.new_id(), (), 1, 2_000_000, only=calm.id_bytes, seize=True)
        answer = await asyncio.wait_for(person.store.claim(seizure), LIMIT)
        assert answer.claimed == (), "it was answered: nobody has the process, so there is nothing to seize"
        await asyncio.wait_for(person.process(calm.id).set_priority(1), LIMIT)


async def test_an_old_primary_that_comes_back_is_not_written_to(
    pair: Pair, crew: tuple[Engine, Engine], caplog: pytest.LogCaptureFixture
) -> None:
    here, _ = crew
    gates["calm"].set()
    calm = await here.start(passage, "calm")
    await soon(lambda: waits(here, calm.id))
    await asyncio.to_thread(pair.sever)
    await asyncio.to_thread(pair.fail_over)
    await soon(lambda: waits(here, calm.id))
    assert pair.dead is not None
    await asyncio.to_thread(pair.primary.stop, signal.SIGKILL)
    await asyncio.to_thread(pair.dead.start)
    starting = asyncio.create_task(here.start(passage.options(key="late"), "late"))

    async def refused() -> bool:
        return "old primary" in caplog.text

    await soon(refused)
    await asyncio.to_thread(pair.dead.stop, signal.SIGKILL)
    assert not starting.done()
    await asyncio.to_thread(pair.primary.start)
    assert (await asyncio.wait_for(starting, LIMIT)).created
