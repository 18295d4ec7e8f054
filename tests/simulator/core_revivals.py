"""Errands whose worker is lost, in every weather: what was under way goes on as late as its state says, or not at all.

A judge goes through the history of each errand: between the event that has opened a state and the end of the step that
is done there, the last loss of a worker must lie as far back as the state's delay says; and where revival is off, a
person must have let the errand go on since then. What comes after the carrying fails at first: a loss from before its
beginning must not keep it from its retry.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, ClassVar

from perdure import Handle, Retry, attempt, flow, step
from perdure.errors import ProcessBroken
from perdure.kernel.event import Event, EventType
from perdure.kernel.failure import Failure
from perdure.kernel.process import Process
from perdure.testing.simulator import Cluster
from tests.simulator.misfortune import by_the_weather_alone

GOES_ON = (EventType.REVIVED, EventType.RESUMED, EventType.RUN_OPENED)
"""What decides whether, and how late, a step that was under way begins again: the last of these."""
LASTS_SECONDS = 12.0
"""How long a state lasts at most whose steps would be revived only later."""


class Seen:
    """What the errands of the last history have met."""

    late: ClassVar[Counter[str]] = Counter()
    """How many steps have ended after the loss of a worker, by their state."""
    stayed: ClassVar[int] = 0
    """How many errands did not go on by themselves."""


@step(retry=Retry.NONE, timeout=60)
async def carry(seconds: float) -> None:
    await asyncio.sleep(seconds)


@step(retry=Retry(attempts=9, first=3.0, factor=1.0))
async def report() -> None:
    """It reaches nobody at first."""
    if attempt().number < 3:
        raise ConnectionError("nobody answers")


class Errand(flow.Flow):
    """Its states differ in what becomes of the carrying if its worker is lost."""

    ready = flow.State()
    soon = flow.State(revival_delay=1.5)
    late = flow.State(revival_delay=20)
    never = flow.State(revival_delay=0)
    outrun = flow.State(timeout=LASTS_SECONDS, revival_delay=900)
    done = flow.State(terminal=True)
    given_up = flow.State(terminal=True)

    seconds: float = 0.0

    @flow.init
    def begun(self, seconds: float) -> None:
        self.seconds = seconds

    @flow.event
    def hurried(self) -> None:
        pass

    @flow.event
    def delayed(self) -> None:
        pass

    @flow.event
    def guarded(self) -> None:
        pass

    @flow.event
    def raced(self) -> None:
        pass

    @flow.event
    def carried(self) -> None:
        pass

    @flow.action
    async def work(self) -> flow.Happened:
        await carry(self.seconds)
        await report()
        return self.carried()

    behaviour = flow.table(
        flow.on(begun).to(ready),
        flow.on(hurried, in_=ready).to(soon).do(work),
        flow.on(delayed, in_=ready).to(late).do(work),
        flow.on(guarded, in_=ready).to(never).do(work),
        flow.on(raced, in_=ready).to(outrun).do(work),
        flow.on(carried).to(done),
        flow.on(outrun.timed_out).to(given_up),
    )


OPENED_BY = {"soon": Errand.hurried, "late": Errand.delayed, "never": Errand.guarded, "outrun": Errand.raced}
"""The states in which something is carried, with the event that opens each."""


async def errands(cluster: Cluster) -> None:
    """Some errands, each in a state of its own; what stays where it was is let go on by a person."""
    Seen.late.clear()
    Seen.stayed = 0
    await asyncio.gather(*(_run(cluster, cluster.pick(tuple(OPENED_BY))) for _ in range(cluster.pick((4, 1, 8)))))


async def _run(cluster: Cluster, state: str) -> None:
    event, delay = OPENED_BY[state], getattr(Errand, state).revival_delay
    handle = await cluster.client.start(Errand.begun, cluster.pick((4.0, 0.3, 12.0)))
    await handle.signal(event)
    ended = await _ended(cluster, handle, state)
    allowed = ("done", "given_up") if state == "outrun" else ("done",)
    cluster.require("the_value_is_exact", ended in allowed, f"an errand in {state} came to {ended!r}")
    events = await handle.history()
    opened = next(one.number for one in events if one.type is EventType.MESSAGE_RECEIVED and one.name == event.name)
    for carried in events:
        if carried.type is EventType.STEP_COMPLETED and carried.name == carry.name:
            before = [one for one in events if opened < one.number < carried.number and one.type in GOES_ON]
            if before and before[-1].type is EventType.REVIVED:
                _judge(cluster, state, delay, before[-1], carried)


def _judge(cluster: Cluster, state: str, delay: float, lost: Event, carried: Event) -> None:
    """Nobody has said anything between the loss of the worker and the end of the step."""
    cluster.require("effect_once", delay > 0, "it was carried again, though its revival is off")
    waited = (carried.at - lost.at) / 1_000_000
    cluster.require("no_early_timer", waited >= delay, f"it was carried {waited} s after the loss, in {state}")
    Seen.late[state] += 1


async def _ended(cluster: Cluster, handle: Handle[Any], state: str) -> Any:
    """What an errand comes to; a person lets it go on where it had to stay, or the weather alone has parked it."""
    while True:
        try:
            return await handle.result()
        except ProcessBroken as error:
            row = await cluster.client.row(handle.id)
            stays = state == "never" and _interrupted(row) and await _lost_last(handle)
            lets = stays or by_the_weather_alone(cluster, row)
            cluster.require("everything_ends", lets, f"an errand in {state} is broken by {error}")
            Seen.stayed += stays
        await handle.retry(who="anna")


async def _lost_last(handle: Handle[Any]) -> bool:
    """Whether nothing has ended between the last loss of its worker and now: what waits for a person was under way."""
    ends = (EventType.REVIVED, EventType.STEP_COMPLETED, EventType.ATTEMPT_FAILED)
    return [event.type for event in await handle.history() if event.type in ends][-1] is EventType.REVIVED


def _interrupted(row: Process) -> bool:
    return Failure.shown(row.error or b"").type == "Interrupted"
