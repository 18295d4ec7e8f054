"""Parents, children, talkers and queued steps; hosted by victims, each in part, which are killed on the way."""

from __future__ import annotations

import asyncio
import os
import signal

from perdure.authoring.step import step
from perdure.authoring.workflow import receive, tell, workflow
from perdure.kernel.retry import Retry
from tests.kill.workload import effect, gate, mark


@step(retry=Retry.NONE)
async def grow(n: int) -> int:
    effect(f"grow{n}")
    return n


@workflow
async def apple(n: int) -> int:
    return await grow(n)


@workflow
async def tree() -> int:
    return await apple.child(1) + await apple.child(2)


@step(retry=Retry.NONE)
async def ripen(name: str) -> str:
    effect(f"ripen-{name}")
    while not gate().exists():
        await asyncio.sleep(0.01)
    return name


@workflow
async def pear(name: str) -> str:
    return await ripen(name)


@workflow
async def hedge() -> str:
    return await pear.child("late")


@workflow
async def listener(count: int) -> list[int]:
    return [await receive("number", int) for _ in range(count)]


@workflow
async def talker(to: str) -> str:
    tell(to, "number", 1)
    await mark(1)
    tell(to, "number", 2)
    await mark(2)
    tell(to, "number", 3)
    return "told"


@step(queue="press", retry=Retry.NONE)
async def press(name: str) -> str:
    effect(f"press-{name}")
    while not gate().exists():
        await asyncio.sleep(0.01)
    return f"{name} juice"


@step(queue="press", retry=Retry.NONE)
async def quick_press(n: int) -> int:
    effect(f"quick{n}")
    return n


@step(queue="press", retry=Retry.NONE)
async def explode() -> None:
    effect("explode")
    os.kill(os.getpid(), signal.SIGKILL)


@workflow
async def juice(name: str) -> str:
    return await press(name)


@workflow
async def quick_juice(n: int) -> int:
    return await quick_press(n)


@workflow
async def bomb() -> None:
    await explode()


PARENTS = [tree, hedge, juice, quick_juice, bomb]
APPLES = [apple]
PEARS = [pear]
TALKERS = [talker]
PRESSES = [press, quick_press, explode]
EVERYTHING = [*PARENTS, *APPLES, *PEARS, *TALKERS]
