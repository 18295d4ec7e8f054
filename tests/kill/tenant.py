"""A tenant who pays each month in a run of its own; hosted by victims, which are killed between the runs."""

from __future__ import annotations

from perdure.authoring.step import step
from perdure.authoring.workflow import workflow
from perdure.kernel.retry import Retry
from perdure.turns.renewal import continue_as_new
from tests.kill.workload import effect


@step(retry=Retry.NONE)
async def pay(month: int) -> int:
    effect(f"pay{month}")
    return month


@workflow
async def tenant(month: int = 1, paid: int = 0) -> int:
    paid += await pay(month)
    if month < 3:
        continue_as_new(month + 1, paid)
    return paid
