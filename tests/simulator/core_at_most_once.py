"""Transfers that run at most once, in every weather: none is made twice, and what is said to be done was done."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any, ClassVar

from perdure import attempt, step, workflow
from perdure.client.handle import Handle
from perdure.errors import IllegalMove, StepError, StepOutcomeUnknown
from perdure.testing.simulator import Cluster
from tests.simulator.misfortune import result_of

UNKNOWN = "unknown"
REFUSED = (3, 4)
"""Of five transfers the bank refuses the last two, in its answer."""


class Bank:
    """What was asked of it, and what it has done, by idempotency key."""

    asked: ClassVar[Counter[str]] = Counter()
    done: ClassVar[Counter[str]] = Counter()

    @classmethod
    async def transfer(cls, number: int) -> str:
        """A transfer takes a while, and is asked for before it is made."""
        key = attempt().idempotency_key
        cls.asked[key] += 1
        await asyncio.sleep((0.05, 0.4, 2.0)[number % 3])
        if number % 5 in REFUSED:
            raise ConnectionRefusedError("no such account")
        cls.done[key] += 1
        return key


@step(at_most_once=True, timeout=20)
async def transfer(number: int) -> str:
    return await Bank.transfer(number)


@step(at_most_once=True, timeout=20, queue="bank")
async def transfer_there(number: int) -> str:
    return await Bank.transfer(number)


async def told(transferred: Any) -> str:
    """The key of a transfer that was made, or why it was not."""
    try:
        return str(await transferred)
    except StepOutcomeUnknown:
        return UNKNOWN
    except StepError as error:
        return error.type


@workflow
async def payroll(first: int) -> list[str]:
    """Two at the same time, one after them, and one in a queue."""
    both = await asyncio.gather(told(transfer(first)), told(transfer(first + 1)))
    last = await told(transfer(first + 2))
    return [*both, last, await told(transfer_there(first + 3))]


async def disturb(cluster: Cluster, handle: Handle[Any]) -> None:
    """A person who pauses a process for a while."""
    await asyncio.sleep(cluster.pick((0.2, 0.7, 2.0)))
    with suppress(IllegalMove):
        await handle.hold(who="anna")
        await asyncio.sleep(cluster.pick((0.1, 1.0)))
        await handle.resume(who="anna")


async def payrolls(cluster: Cluster) -> None:
    """Some processes that transfer four times each; at the end the bank's book is compared with what they say."""
    Bank.asked.clear()
    Bank.done.clear()
    handles = [await cluster.client.start(payroll, 4 * number) for number in range(cluster.pick((3, 1, 6)))]
    disturbed = [handle for handle in handles if cluster.draw(4) == 3]
    await asyncio.gather(*(disturb(cluster, handle) for handle in disturbed))
    answers = [one for handle in handles for one in await result_of(cluster, handle)]
    await asyncio.sleep(30)  # who was paused comes back with late results
    twice = [key for key, times in Bank.asked.items() if times > 1]
    cluster.require("effect_once", not twice, f"{twice} were asked for more than once")
    said = Counter(one for one in answers if "/" in one)
    lies = [key for key, times in said.items() if times > 1 or Bank.done[key] != 1]
    cluster.require("the_value_is_exact", not lies, f"{lies} are said to be done, and were not")
    refused = sum(one == ConnectionRefusedError.__name__ for one in answers)
    known = len(Bank.asked) - len(Bank.done)
    cluster.require("the_value_is_exact", refused <= known, f"{refused} are said to be refused, and {known} were")
    strange = set(answers) - said.keys() - {UNKNOWN, ConnectionRefusedError.__name__}
    cluster.require("the_value_is_exact", not strange, f"transfers ended with {strange}")
    Seen.unknown, Seen.disturbed = answers.count(UNKNOWN), len(disturbed)


class Seen:
    """How many transfers of the last history have an unknown end, and how many processes a person has paused."""

    unknown: ClassVar[int] = 0
    disturbed: ClassVar[int] = 0
