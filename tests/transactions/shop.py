"""Workflows that are started and told things in the transactions of others."""

from __future__ import annotations

from perdure.authoring.step import step
from perdure.authoring.workflow import receive, workflow
from perdure.kernel.notice import Notice


@step
async def write_bill(number: int) -> str:
    return f"bill {number}"


@workflow(name="transactions/bill")
async def bill(number: int) -> str:
    return await write_bill(number)


@workflow(name="transactions/greet")
async def greet() -> str:
    return f"hello {await receive('name', str)}"


@workflow(name="transactions/told")
async def told() -> list[str]:
    return [(await receive("notice", Notice)).status for _ in range(2)]
