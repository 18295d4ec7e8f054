"""A client knows the library's own machines by kind, also if it has not used their verbs: it checks what it sends."""

from __future__ import annotations

import pytest

from perdure import Schedule
from perdure.authoring.schedule.machine import KIND
from perdure.errors import InvalidInput, PayloadError
from tests.runtime.conftest import Open
from tests.schedules.reports import report


async def test_a_client_that_has_used_no_schedule_checks_what_it_sends_to_the_process_of_one(opened: Open) -> None:
    worker, _ = await opened(work=True, workflows=[report])
    await worker.schedules.put("hourly", Schedule(every=3_600), report, "hourly")
    client, _ = await opened(workflows=[])
    behind = await client.handle(KIND, "hourly")
    with pytest.raises(InvalidInput, match="no method 'pauze' that can be called"):
        await behind.signal("pauze")
    await behind.hold()
    with pytest.raises(PayloadError, match="started"):
        await behind.edit_fields(started="many")
    with pytest.raises(InvalidInput, match="startet"):
        await behind.edit_fields(startet=3)
    await behind.edit_fields(started=3)
    assert (await behind.status()).state["started"] == 3
