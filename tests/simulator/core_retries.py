"""Estates in every weather: whoever retries a process as often as it fails loses no child, no answer and no letter.

An estate asks for its heir behind an appraisal that fails some times, so a retry begins in front of a child that is
there already: it may go on, or answer before its parent comes to it again. Letters arrive whenever they like.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from perdure import Handle, Retry, new_uuid, receive, step, workflow
from perdure.errors import IllegalMove, ProcessBroken, ProcessFailed, StepError, StoreUnavailable
from perdure.testing.simulator import Cluster
from tests.simulator.misfortune import by_the_weather_alone

APPRAISED: Counter[str] = Counter()
"""How often each estate was appraised."""
INHERITED: dict[str, set[str]] = {}
"""What each estate's heirs were given, one for each of them."""
FAILS = 3


@step(retry=Retry.NONE, timeout=60)
async def appraise(name: str, seconds: float) -> None:
    """Fails the first times."""
    await asyncio.sleep(seconds)
    APPRAISED[name] += 1
    if APPRAISED[name] <= FAILS:
        raise ValueError(name)


@step(retry=Retry(attempts=40, first=0.2, cap=2.0), timeout=60)
async def inherit(name: str, share: str, seconds: float) -> str:
    """Write down what an heir was given."""
    INHERITED.setdefault(name, set()).add(share)
    await asyncio.sleep(seconds)
    return share


@workflow
async def heir(name: str, seconds: float) -> str:
    return await inherit(name, str(new_uuid()), seconds)


@workflow
async def estate(name: str, bond: Any, appraisal: float, inheritance: float) -> list[str]:
    """It goes to an heir: also if the appraisal fails, but then the estate fails all the same."""
    told = [asyncio.ensure_future(receive("claim", str)) for _ in range(2)]
    try:
        await appraise(name, appraisal)
    except StepError:
        share = heir.child.options(on_parent_end=bond)(name, inheritance)
        await asyncio.wait([share], timeout=appraisal)
        raise
    share = heir.child.options(on_parent_end=bond)(name, inheritance)
    return [await share, *await asyncio.gather(*told)]


async def estates(cluster: Cluster) -> None:
    """Some estates, which a person retries until they are settled."""
    APPRAISED.clear()
    INHERITED.clear()
    await asyncio.gather(*(_settle(cluster, f"estate {number}") for number in range(cluster.pick((2, 1, 4)))))


async def _settle(cluster: Cluster, name: str) -> None:
    bond = cluster.pick(("abandon", "cancel", "terminate"))
    appraisal, inheritance = cluster.pick((0.3, 1.0, 3.0)), cluster.pick((0.5, 2.0, 0.1))
    handle = await cluster.client.start(estate, name, bond, appraisal, inheritance)
    letters = [asyncio.ensure_future(_claim(cluster, handle, text)) for text in ("first", "second")]
    share, *claims = await _retried(cluster, handle)
    await asyncio.gather(*letters)
    cluster.require("accepted_is_kept", sorted(claims) == ["first", "second"], f"{name} was told {claims}")
    cluster.require("the_value_is_exact", share in INHERITED[name], f"{name} went to nobody")
    if bond == "abandon":
        cluster.require("effect_once", len(INHERITED[name]) == 1, f"{name} went to {len(INHERITED[name])} heirs")


async def _claim(cluster: Cluster, handle: Handle[Any], text: str) -> None:
    await asyncio.sleep(cluster.pick((0.2, 1.5, 5.0)))
    while True:
        try:
            await handle.signal("claim", text, key=text)
        except StoreUnavailable:
            await asyncio.sleep(0.5)
        else:
            return


async def _retried(cluster: Cluster, handle: Handle[Any]) -> list[str]:
    """What an estate comes to; a person retries it whenever it has failed, a while later."""
    while True:
        try:
            return list(await handle.result())
        except ProcessFailed:
            await asyncio.sleep(cluster.pick((0.1, 2.0, 6.0)))
        except ProcessBroken as error:
            row = await cluster.client.row(handle.id)
            cluster.require("everything_ends", by_the_weather_alone(cluster, row), f"{handle} is broken by {error}")
        try:
            await handle.retry(who="anna")
        except (IllegalMove, StoreUnavailable):
            await asyncio.sleep(0.5)
