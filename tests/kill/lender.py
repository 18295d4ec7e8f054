"""Payments to a bank that is down as long as a file is there."""

from __future__ import annotations

from pathlib import Path

from perdure import Retry, step, workflow


@step(retry=Retry.NONE)
async def pay(down: str) -> None:
    if Path(down).exists():
        raise ConnectionError("the bank does not answer")


@workflow
async def loan(down: str) -> None:
    await pay(down)
