"""A journey that fails when all is reserved, so that all is undone; hosted by victims, which are killed on the way."""

from __future__ import annotations

import asyncio

from perdure.authoring.step import attempt, step
from perdure.authoring.workflow import workflow
from perdure.errors import Permanent
from perdure.kernel.policy import Retry
from tests.kill.victim import effect


@step(retry=Retry.NONE)
async def give_back(n: int, result: int | None) -> None:
    assert attempt().undoes
    effect(f"give_back{n}")


@step(undo=give_back, retry=Retry.NONE)
async def reserve(n: int) -> int:
    effect(f"reserve{n}")
    return n


@step(retry=Retry.NONE)
async def board() -> None:
    raise Permanent("the last train has gone")


@workflow
async def journey() -> None:
    for n in (1, 2, 3):
        await reserve(n)
    await board()


@workflow
async def party() -> None:
    await asyncio.gather(*(reserve(n) for n in (1, 2, 3)))
    await board()
