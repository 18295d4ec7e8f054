"""Health: what waits since somebody or something holds it is told as that, and not as a lack of workers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from perdure.client.health import HealthFinding, HealthLevel, health
from perdure.kernel.worker import Offer, WorkerRow
from tests.alerting import shop
from tests.alerting.conftest import LaterStore
from tests.runtime.conftest import Open, until_row


@pytest.fixture
async def later(store_url: str, opened: Open) -> AsyncIterator[LaterStore]:
    """The store, twenty minutes after a label was to be printed; a worker says that it serves the queue."""
    worker, _ = await opened(work=True, workflows=[shop.labelling], queues=[])
    handle = await worker.start(shop.labelling, "A-1")
    await until_row(worker, handle.id, lambda row: row.owner is None)
    row = WorkerRow(worker.machine.new_id(), "till:1", Offer((("@printer", ""),)).encode())
    await worker.store.enlist(row, 3_600_000_000)
    store = LaterStore(store_url)
    await store.open(migrate=False)
    store.ahead = 1200
    yield store
    await store.close()


async def queues(store: LaterStore) -> HealthFinding:
    """What is found of the queues."""
    [found] = [one for one in (await health(store)).findings if one.check == "queues"]
    return found


async def test_a_queue_that_is_blocked_or_held_as_an_outage_needs_no_more_workers(
    opened: Open, later: LaterStore
) -> None:
    client, _ = await opened()
    await client.queues.block("elsewhere", who="Bob")
    await client.outages.begin("labelling")
    found = await queues(later)
    assert found.level is HealthLevel.CRITICAL and "Start more workers" in found.text and "Bob" not in found.text
    await client.outages.begin("@printer", why="no paper")
    found = await queues(later)
    assert found.level is HealthLevel.WARNING and "more workers" not in found.text
    assert "printer, 1,20" in found.text and "an outage holds it (no paper): `perdure outage ls`" in found.text
    await client.queues.block("printer", who="Ann", why="new toner")
    found = await queues(later)
    assert found.level is HealthLevel.WARNING and "more workers" not in found.text
    assert "Ann has blocked it (new toner): `perdure queue unblock printer`" in found.text
