"""A journey that fails when all is reserved, so that all is undone; hosted by victims, which are killed on the way."""

from __future__ import annotations

import asyncio

from perdure.authoring.step import attempt, step
from perdure.authoring.workflow import workflow
from perdure.errors import Permanent
from perdure.kernel.retry import Retry
from tests.kill.workload import effect


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


@step(queue="desk", retry=Retry.NONE)
async def give_back_there(n: int, result: int | None) -> None:
    assert attempt().undoes
    effect(f"give_back{n}")


@step(undo=give_back_there, retry=Retry.NONE)
async def reserve_there(n: int) -> int:
    effect(f"reserve{n}")
    return n


@workflow
async def night(n: int) -> int:
    return await reserve(n)


@workflow
async def voyage() -> None:
    """Its undos wait in a queue; the second one undoes a child, which has ended well."""
    await reserve_there(1)
    await night.child.options(undo=give_back_there)(2)
    await reserve_there(3)
    await board()


DESK = [give_back_there]
