"""What tests of alert rules share: what was told to the log, and processes that stand as a test wants it."""

from __future__ import annotations

import pytest

from perdure import Engine
from perdure.errors import PerdureError
from tests.alerting import shop
from tests.runtime.conftest import LIMIT


def told(caplog: pytest.LogCaptureFixture, status: str = "") -> list[str]:
    """What rules have told to the log, in this status or in any; alerts of workers have no rule."""
    found = [record for record in caplog.records if record.name == "perdure.alert" and hasattr(record, "rule")]
    return [record.getMessage() for record in found if status in ("", record.status)]


async def broken(engine: Engine, *orders: str) -> None:
    """These orders of kind ``shipping`` are broken."""
    await _failed(engine, "shipping", orders)


async def failed(engine: Engine, *orders: str) -> None:
    """These orders of kind ``paying`` have failed."""
    await _failed(engine, "paying", orders)


async def _failed(engine: Engine, kind: str, orders: tuple[str, ...]) -> None:
    shop.unwell.add("bank")
    workflow = getattr(shop, kind)
    for handle in [await engine.start(workflow.options(key=order), order) for order in orders]:
        with pytest.raises(PerdureError):
            await handle.result(LIMIT)
