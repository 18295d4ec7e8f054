"""What lives while its database loses commits: a process that crosses, pays, and waits to be let go."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict

from perdure import receive, step, workflow
from perdure.kernel.retry import Retry

done: Counter[tuple[str, str]] = Counter()
gates: dict[str, asyncio.Event] = defaultdict(asyncio.Event)


def forget() -> None:
    """Forget what was done, and close the gates."""
    done.clear()
    gates.clear()


@step(retry=Retry.NONE)
async def cross(who: str) -> None:
    """A step that is under way when the backup is taken, or while servers fail."""
    await gates[who].wait()


@step(retry=Retry.NONE)
async def pay(who: str) -> None:
    """An effect that must not be repeated by itself."""
    done["paid", who] += 1


@workflow
async def passage(who: str) -> str:
    """Cross, pay, and wait to be let go."""
    await cross(who)
    await pay(who)
    await receive("go")
    return who
