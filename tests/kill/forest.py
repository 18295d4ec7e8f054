"""Large families, and families that end together; hosted by victims, each in part, which are killed on the way."""

from __future__ import annotations

import asyncio

from perdure.authoring.workflow import workflow
from tests.kill.orchard import pear, ripen
from tests.kill.workload import mark


@workflow
async def seed(n: int) -> int:
    return n


@workflow
async def forest(n: int) -> int:
    return sum(await asyncio.gather(*(seed.child(one) for one in range(n))))


@workflow
async def trellis(name: str) -> str:
    """A child that would clean up, and has a child of its own."""
    pear.child.options(on_parent_end="terminate")(f"{name}'s")
    try:
        return await ripen(name)
    finally:
        await mark(99)


@workflow
async def walled() -> str:
    return await trellis.child.options(on_parent_end="terminate")("late")


FORESTERS = [forest, seed]
WALLS = [walled]
GARDEN = [trellis, pear]
