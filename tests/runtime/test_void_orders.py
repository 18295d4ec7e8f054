"""After a restart, requests to cancel that came before it count no more, in whichever run they are heard."""

from __future__ import annotations

import pytest

from perdure import limits
from perdure.authoring.workflow import Workflow, receive, workflow
from perdure.errors import ProcessCancelled
from perdure.kernel.retry import Retry
from perdure.kernel.run import opening_of
from perdure.turns.renewal import continue_as_new
from tests.runtime.conftest import LIMIT, Open, until_row
from tests.runtime.kin import sound

begun: list[str] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    begun.clear()


@workflow
async def renews() -> str:
    """In its second run it continues as new at once."""
    begun.append("a run")
    if len(begun) == 2:
        continue_as_new()
    return await receive("end", str)


@workflow(retry=Retry(attempts=2, first=0.001))
async def tries_again() -> str:
    """In its second run it fails at once."""
    begun.append("a run")
    if len(begun) == 2:
        raise ValueError("not yet")
    return await receive("end", str)


@pytest.mark.parametrize("flow", [renews, tries_again])
async def test_a_cancel_from_before_a_restart_does_not_end_a_run_that_the_process_opens_itself(
    opened: Open, monkeypatch: pytest.MonkeyPatch, flow: Workflow[[], str]
) -> None:
    monkeypatch.setattr(limits, "HEARD_BYTES", 1)  # a claim, and a reading, bring one message of an inbox
    engine, _ = await opened(work=True, workflows=[flow])
    handle = await engine.start(flow)
    for _ in range(8):
        await handle.signal("left", 40 * "x")
    await handle.cancel()
    with pytest.raises(ProcessCancelled):
        await handle.result(LIMIT)
    await handle.restart()
    await until_row(engine, handle.id, lambda row: row.run == 3 and row.seen == 9 and row.owner is None)
    await handle.signal("end", "done")
    assert await handle.result(LIMIT) == "done"
    opening = opening_of(await handle.history())
    assert (opening.from_run, opening.void) == (2, 9)
    await sound(engine)
