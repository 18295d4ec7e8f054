"""A database of a former release is upgraded, and each process that its engine left there comes to its right end."""

from __future__ import annotations

import pytest

from perdure.engine import Engine
from perdure.errors import ProcessFailed, StoreTooOld
from perdure.kernel.process import Status
from perdure.runtime.options import WorkerOptions
from tests.upgrade import flow
from tests.upgrade.release import RELEASES, make

LIMIT = 20.0
QUICK = WorkerOptions(beat_seconds=0.1)

DONE = ["after it", "back flight", "back hotel", "hotel", "one", "second", "third", "two"]
"""What was still to be done. What the release had done is not done again, above all the booking of the flight."""


@pytest.fixture(autouse=True)
def _fresh() -> None:
    flow.done.clear()


@pytest.mark.parametrize("release", RELEASES)
async def test_every_process_of_a_released_database_goes_on_after_the_upgrade_to_its_right_end(
    release: str, store_url: str
) -> None:
    await make(release, store_url)
    with pytest.raises(StoreTooOld, match="perdure migrate"):
        await Engine(store_url, migrate=False).__aenter__()
    async with Engine(store_url, migrate=True) as client:
        was = {view.key: view for view in await client.list() if view.key}
        assert was["plain"].status is Status.COMPLETED and was["held"].status is Status.HELD
        plain = await client.start(flow.plain.options(key="plain"), "done")  # the key is known: nothing is begun
        assert (plain.id, await plain.result(LIMIT)) == (was["plain"].id, "done")
        assert await plain.value("what", str) == "done"
    async with Engine(store_url, work=True, workflows=flow.WORKFLOWS, queues=["upgrade"], options=QUICK) as engine:

        async def result(key: str) -> object:
            return await engine.process(was[key].id).result(timeout=LIMIT)

        assert await result("sleeper") == ["before the night", "after it"]
        assert await result("stepping") == ["first", "second", "third"]
        assert await result("listener") == ["Ann", "Ben", "Cid"]
        assert await result("one") == "one"
        assert await result("two") == "two"
        for _ in range(2):
            await engine.process(was["renewed"].id).signal("go")
        await engine.process(was["renewed"].id).signal("name", "Cid")
        assert await result("renewed") == ["Ann", "Ben", "Cid"]
        await engine.process(was["trip"].id).signal("go")
        with pytest.raises(ProcessFailed, match="no room"):
            await result("trip")
        child = next(view for view in await engine.list() if view.kind == "upgrade/listener" and not view.key)
        for to in (child.id, was["held"].id):
            for name in ("Eve", "Fay", "Gus"):
                await engine.process(to).signal("name", name)
        await engine.process(child.id).signal("go")
        assert await result("parent") == ["Eve", "Fay", "Gus"]
        await engine.process(was["held"].id).resume(who="Ann")  # its "go" has been in the inbox since that release
        assert await result("held") == ["Eve", "Fay", "Gus"]
        queue = next(queue for queue in await engine.queues.list() if queue.name == "upgrade")
        assert (queue.concurrency, queue.who) == (1, "Ann")
    assert sorted(flow.done) == DONE
