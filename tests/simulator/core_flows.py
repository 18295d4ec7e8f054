"""Flows in every weather: orders ask a bank, which answers late, twice, in part or never; each event counts once.

An order writes a journal of all that happens to it, in its own fields. A model of its table, kept here apart, goes
through that journal afterwards; and a judge looks how often, how soon and how long each question was sent. A condition
sends some of the orders to be filed, which is done at most once; and some states leave memory, or are revived late.
"""

from __future__ import annotations

import asyncio
from typing import Any

from perdure import Handle, ProcessFailed, Retry, flow, machine, now, step
from perdure.errors import CallRefused, CallUnanswered, StepOutcomeUnknown
from perdure.kernel.message import SendVerdict
from perdure.testing.simulator import Cluster
from tests.simulator.misfortune import dismissed

ATTEMPTS, FIRST, JITTER = 4, 2.0, 0.2
GIVEN_UP, WAITS, WHOLE = 25.0, 8.0, 12.0
asked: dict[str, list[str]] = {}
"""The questions that a bank has seen, by the name of the order."""
filed: dict[str, int] = {}
"""How often each order was filed."""

MODEL = {
    ("reserving", "acknowledged"): "waiting",
    ("waiting", "waiting.timed_out"): "reserving",
    ("reserving", "reserved first"): "booking",
    ("waiting", "reserved first"): "booking",
    ("reserving", "reserved later"): "filing",
    ("waiting", "reserved later"): "filing",
    ("filing", "noted"): "noted",
    ("filing", "unclear"): "unclear",
    ("reserving", "refused"): "denied",
    ("waiting", "refused"): "denied",
    ("reserving", "reserve.timed_out"): "lost",
    ("waiting", "reserve.timed_out"): "lost",
    ("booking", "booked"): "booked",
    ("booking", "seen"): "seen",
    ("booked", "seen"): "settled",
    ("seen", "booked"): "settled",
}
"""Where each event leads. An order shows ``booking`` for the two states in which one of its two events has come."""


@step(retry=Retry.NONE, timeout=30)
async def ask(order: str, id: str, seconds: float) -> None:
    """Ask the bank."""
    seen = asked.setdefault(order, [])
    if id not in seen:
        seen.append(id)
    await asyncio.sleep(seconds)


@step(retry=Retry(attempts=40, first=0.2, cap=2.0), timeout=30)
async def write(name: str, seconds: float) -> str:
    """Take a while."""
    await asyncio.sleep(seconds)
    return name


@step(timeout=30)
async def file(name: str, seconds: float) -> None:
    """File an order, which takes a while."""
    filed[name] = filed.get(name, 0) + 1
    await asyncio.sleep(seconds)


class Order(flow.Flow):
    """An order, whose journal says what has happened, about what, and when (microseconds)."""

    name: str = ""
    pace: float = 0.0
    journal: list[tuple[str, str, int]] = machine.field(default_factory=list)

    reserving = flow.State()
    waiting = flow.State(timeout=WAITS, passivating=True)
    booking = flow.State(revival_delay=1.5)
    filing = flow.State(at_most_once=True)
    noted = flow.State(terminal=True)
    unclear = flow.State(terminal=True)
    settled = flow.State(terminal=True)
    denied = flow.State(terminal=True)
    lost = flow.State(terminal=True)

    whole = flow.Stretch(reserving, settled, timeout=WHOLE)

    def note(self, what: str, value: str) -> None:
        """Write a line into the journal."""
        self.journal.append((what, value, round(now().timestamp() * 1_000_000)))

    @flow.init
    def begun(self, name: str, pace: float) -> None:
        self.name, self.pace = name, pace

    @flow.event
    def acknowledged(self, value: str) -> None:
        self.note("acknowledged", value)

    @flow.event
    def reserved(self, value: str) -> None:
        self.note("reserved", value)

    @flow.condition
    def first(self, value: str) -> bool:
        return is_first(value)

    @flow.event
    def has_filed(self) -> None:
        self.note("noted", "")

    @flow.event
    def may_have_filed(self) -> None:
        self.note("unclear", "")

    @flow.event
    def refused(self, value: str) -> None:
        self.note("refused", value)

    @flow.event
    def booked(self, value: str) -> None:
        self.note("booked", value)

    @flow.event
    def seen(self, value: str) -> None:
        self.note("seen", value)

    @flow.request(
        timeout=GIVEN_UP,
        retry=Retry(attempts=ATTEMPTS, first=FIRST, jitter=JITTER),
        answers={"ACCP": reserved, "PDNG": flow.interim(acknowledged)},
        default=refused,
    )
    async def reserve(self, id: str) -> None:
        self.note("send", id)
        await ask(self.name, id, self.pace)

    @flow.action
    async def book(self) -> flow.Happened:
        return self.booked(await write(self.name, self.pace))

    @flow.action(errors={StepOutcomeUnknown: may_have_filed})
    async def enter(self) -> flow.Happened:
        await file(self.name, self.pace + 5.0)
        return self.has_filed()

    @flow.action
    async def note_wait(self) -> None:
        self.note("waiting.timed_out", "")

    @flow.action
    async def note_loss(self) -> None:
        self.note("reserve.timed_out", "")

    @flow.action
    async def note_whole(self) -> None:
        self.note("whole.timed_out", "")

    behaviour = flow.table(
        flow.on(begun).to(reserving).do(reserve),
        flow.on(acknowledged, in_=reserving).to(waiting),
        flow.on(waiting.timed_out, in_=waiting).to(reserving).do(note_wait),
        flow.on(reserved, in_=(reserving, waiting), when=first).to(booking).do(book),
        flow.on(reserved, in_=(reserving, waiting)).to(filing).do(enter),
        flow.on(has_filed, in_=filing).to(noted),
        flow.on(may_have_filed, in_=filing).to(unclear),
        flow.on(refused, in_=(reserving, waiting)).to(denied),
        flow.on(reserve.timed_out, in_=(reserving, waiting)).to(lost).do(note_loss),
        flow.all_of(booked, seen, in_=booking).to(settled),
        flow.on(whole.timed_out).do(note_whole),
    )


class Bank:
    """It answers the question of one order as was drawn; ``told`` are the values that a running flow was sent."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.told: list[str] = []
        self.plan = cluster.pick(
            (
                [(1, "ACCP")],
                [(3, "ACCP"), (0, "ACCP")],
                [(5, "PDNG"), (6, "ACCP")],
                [(1, "PDNG"), (12, "PDNG"), (1, "ACCP")],
                [(4, "RJCT"), (0, "ACCP")],
                [(1, "PDNG")],
                [],
            )
        )

    async def serve(self) -> None:
        """Wait for the question, then answer."""
        while self.name not in asked:
            await asyncio.sleep(0.5)
        (id,) = asked[self.name]
        for number, (delay, code) in enumerate(self.plan):
            await asyncio.sleep(delay)
            value = f"{self.name}/{number}"
            answer = Order.answer.options(key=value)
            for _ in range(self.cluster.pick((1, 2))):
                verdict = await self.cluster.client.process(flow.process_of(id)).signal(answer, id, code, "", value)
                if verdict is SendVerdict.DELIVERED:
                    self.told.append(value)


async def looks(cluster: Cluster, handle: Handle[Any]) -> None:
    """A customer who looks at the order again and again, until that is expected or the order has ended."""
    for number in range(200):
        try:
            await handle.call(Order.seen, f"look {number}")
        except CallRefused:
            await asyncio.sleep(1)
        except CallUnanswered:
            return
        else:
            return
    cluster.require("everything_ends", False, "an order neither ends nor is to be looked at")


async def orders(cluster: Cluster) -> None:
    """Some orders, a bank and a customer for each; one is perhaps aborted. At the end the journals are judged."""
    asked.clear()
    filed.clear()
    for number in range(cluster.pick((1, 2, 3))):
        name = f"order {number}"
        handle = await cluster.client.start(Order.begun, name, cluster.pick((0.0, 0.3, 2.0)))
        bank = Bank(cluster, name)
        served, customer = asyncio.create_task(bank.serve()), asyncio.create_task(looks(cluster, handle))
        if cluster.draw(6) == 5:
            await asyncio.sleep(cluster.pick((2, 8, 20)))
            await handle.signal(Order.abort, "enough")
        try:
            ended = await handle.result()
        except ProcessFailed as failed:
            cluster.require("the_value_is_exact", failed.type == "Aborted", f"an order has failed: {failed}")
            ended = "aborted"
        await dismissed(served)
        await customer
        view = await cluster.client.process(handle.id).status()
        state = view.state
        stands, journal = state["flow"], [(what, value, at) for what, value, at in state["journal"]]
        shown = view.attributes["state"] == stands["state"] == ended
        cluster.require("the_value_is_exact", shown, f"{ended} is shown as {view.attributes} and {stands['state']}")
        cluster.require(
            "accepted_is_kept", stands["due"] == {} and not stands["requests"], "an ended order still waits"
        )
        _walk(cluster, journal, ended)
        cluster.require("effect_once", filed.get(name, 0) <= 1, f"{name} was filed {filed.get(name)} times")
        cluster.require("effect_once", ended != "noted" or filed.get(name) == 1, f"{name} was noted and never filed")
        _judge(cluster, journal)
        _look_for(cluster, bank.told, journal, stands, ended)


def _walk(cluster: Cluster, journal: list[tuple[str, str, int]], ended: str) -> None:
    """Go through the journal with the model."""
    state, told = "reserving", [_told(what, value) for what, value, _ in journal]
    for what in told:
        if what not in ("send", "whole.timed_out"):
            cluster.require("the_value_is_exact", (state, what) in MODEL, f"{what} in {state} of {told}")
            state = MODEL[state, what]
    cluster.require("the_value_is_exact", ended in (state, "aborted"), f"{told} leads to {state}, not to {ended}")
    begun, again = journal[0][2], True  # a stretch that is over begins again when its first state is entered
    for what, _, at in journal:
        if what == "whole.timed_out":
            cluster.require("effect_once", again and at >= begun + WHOLE * 1_000_000 - 1, f"{what} at {at} in {told}")
            again = False
        elif what == "waiting.timed_out" and not again:
            begun, again = at, True
    values = [value for what, value, _ in journal if value and what != "send"]
    cluster.require("effect_once", len(values) == len(set(values)), f"{values} were taken")


def _told(what: str, value: str) -> str:
    """What has happened, as the model has it."""
    if what != "reserved":
        return what
    return "reserved first" if is_first(value) else "reserved later"


def is_first(value: str) -> bool:
    """Whether it is the value of the first answer of a bank."""
    return value.endswith("/0")


def _judge(cluster: Cluster, journal: list[tuple[str, str, int]]) -> None:
    """The question has one id, was sent at most so often, not too soon, and not after its answer."""
    sends = [(id, at) for what, id, at in journal if what == "send"]
    cluster.require("effect_once", len({id for id, _ in sends}) == 1, f"{sends} have several ids")
    cluster.require("effect_once", 1 <= len(sends) <= ATTEMPTS, f"sent {len(sends)} times")
    began = sends[0][1]
    for number, (_, at) in enumerate(sends[1:]):
        soonest = sends[number][1] + FIRST * 2**number * (1 - JITTER) * 1_000_000
        cluster.require("no_early_timer", at >= soonest - 1, f"send {number + 2} at {at}, not before {soonest}")
    closed = False
    acknowledged = 0
    for what, _, at in journal:
        cluster.require("effect_once", not (closed and what == "send"), "it was sent again after its last answer")
        closed = closed or what in ("reserved", "refused", "reserve.timed_out")
        acknowledged = at if what == "acknowledged" else acknowledged
        since, seconds = {
            "waiting.timed_out": (acknowledged, WAITS),
            "reserve.timed_out": (began, GIVEN_UP),
            "whole.timed_out": (began, WHOLE),
        }.get(what, (0, 0.0))
        cluster.require("no_early_timer", at >= since + seconds * 1_000_000 - 1, f"{what} came too early")


def _value_of(unexpected: dict[str, Any]) -> str:
    """The value of an answer that no request or no state expected."""
    told = unexpected["arguments"]
    return str(told[3] if unexpected["event"] == "answer" else told["value"])


def _look_for(
    cluster: Cluster, told: list[str], journal: list[tuple[str, str, int]], stands: dict[str, Any], ended: str
) -> None:
    """Each answer that a flow was given has happened, is kept, or came when it had its end before it."""
    happened = [value for _, value, _ in journal]
    kept = [_value_of(one) for one in stands["unexpected"]]
    for number, value in enumerate(told):
        found = (value in happened) + (value in kept)
        cluster.require("effect_once", found <= 1, f"{value} has happened and is kept as unexpected")
        later = [one for one in told[number + 1 :] if one in happened or one in kept]
        cluster.require("accepted_is_kept", found or not later, f"{value} was passed over, and {later} was not")
    if ended == "settled":
        cluster.require("effect_once", "booked" in [what for what, _, _ in journal], "it was settled and never booked")
