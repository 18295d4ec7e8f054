"""A person: starts one process, sends it what it hears, and orders it about, by whichever node can be reached."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from msgspec import Struct, field

from perdure.authoring.start import NamedWorkflow
from perdure.engine import Engine
from perdure.errors import BadRecord, CallUnanswered, IllegalMove, KeyConflict, PerdureError
from perdure.kernel import undo
from perdure.kernel.event import Event, EventType
from perdure.kernel.names import id_bytes
from perdure.kernel.process import Process, Status
from perdure.limits import BATCH_BYTES
from perdure.testing.simulator import NodeKilled
from tests.simulator.chance import Chance, one_in, one_of
from tests.simulator.ledger import Ledger
from tests.simulator.oracle import BY_HAND, Facts
from tests.simulator.play import NOISE, letter
from tests.simulator.program import Do, Hear, Program, Way, nodes

VERBS = (
    "cancel", "hold", "terminate", "restart", "restart_from", "set_result", "skip", "retry", "duplicate", "cancel soon",
    "conflict",
)  # fmt: skip
"""What a person may do to a process beside starting it; the first is the commonest."""
WHY = "the history wants it"
"""Why people do all this."""
PATIENCE = 40.0
"""Seconds that a person waits for an answer before asking somebody else."""
RESTING_LOOKS = 15

Ask = Callable[[Engine], Awaitable[Any]]
Reach = Callable[[Ask], Awaitable[Any]]
"""Has somebody who can be reached ask its engine; raises what that raises, or that it died meanwhile."""


class Order(Struct, frozen=True):
    """One thing that a person does, after so many seconds. ``choice`` picks among what is there then."""

    verb: str
    after: float
    choice: int = 0


class Case(Struct):
    """One process of a history: how it is started, what is done to it, and what is known of that.

    ``ordered`` counts what people have asked for, by verb, ``told`` what was answered to be done.
    """

    key: str
    kind: str
    program: Program
    orders: list[Order] = field(default_factory=list)
    after: float = 0.0
    deadline: float | None = None
    noise: int = 0
    facts: Facts = field(default_factory=Facts)
    id: str = ""
    asks: int = 0
    answers: list[tuple[str, bool]] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    ordered: Counter[str] = field(default_factory=Counter)
    told: Counter[str] = field(default_factory=Counter)

    @property
    def id_bytes(self) -> bytes:
        """The id as the store has it."""
        return id_bytes(self.id)


def case(chance: Chance, key: str, kind: str, program: Program, verbs: frozenset[str], seconds: float) -> Case:
    """A process and what is done to it within about so many seconds; the boring one is only started."""
    made = Case(key, kind, program, after=one_of(chance, (0.0, 0.1, 1.0, 5.0)))
    known = [verb for verb in VERBS if verb in verbs]
    if known and one_in(chance, 2):
        for _ in range(1 + chance.draw(3)):
            after = one_of(chance, (0.0, 0.02, 0.1, 0.3, 1.0)) * seconds
            made.orders.append(Order(one_of(chance, known), after, chance.draw(4)))
    if "retry" in verbs and one_in(chance, 3):  # whatever has failed by then is given another chance
        made.orders.append(Order("retry", 0.0, 1))
    if "deadline" in verbs and one_in(chance, 8):
        made.deadline = one_of(chance, (1.0, 0.1)) * seconds
        made.facts.expiring = True
    made.noise = one_of(chance, (0, 0, 2, 9))
    return made


class Person:
    """Looks after one case until it is started, told everything, and ordered about."""

    def __init__(
        self, case: Case, reach: Reach, ledger: Ledger, saw: Callable[[str], None] = lambda probe: None
    ) -> None:
        self.case = case
        self.reach = reach
        self.ledger = ledger
        self.saw = saw

    async def act(self) -> None:
        """Everything that is to be done, in order; signals are sent meanwhile."""
        await asyncio.sleep(self.case.after)
        await self.start()
        telling = asyncio.ensure_future(self._tell())
        for order in self.case.orders:
            await asyncio.sleep(order.after)
            await self.obey(order)
        await telling

    async def start(self) -> None:
        """Start the process, or ask for it once more: the key keeps it one."""
        case = self.case

        async def ask(engine: Engine) -> None:
            case.asks += 1
            handle = await engine.start(
                NamedWorkflow(case.kind).options(key=case.key, deadline=case.deadline), case.program
            )
            if case.asks == 1 and not handle.created:
                self.saw("VIOLATION the only start that was ever asked for was answered as one of many")
            case.answers.append((handle.id, handle.created))
            case.id = case.id or handle.id

        await self._insist(ask)

    async def _tell(self) -> None:
        """Send every signal that the program hears, in order, under keys of their own; every second one is a call.

        Before it, between them and after it come signals that no program ever hears.
        """
        for number in range(self.case.noise // 2):
            await self._make_noise(number)
        heard = {n.name: n for n in nodes(self.case.program.body, children=False) if isinstance(n, Hear)}
        for node in heard.values():
            if node.timeout is not None or not node.name.startswith("letter"):
                continue
            for number in range(1, node.count * self.case.program.rounds + 1):
                text, key = letter(node.name, number), f"{node.name}/{number}"

                async def send(engine: Engine, name: str = node.name, text: str = text, key: str = key) -> None:
                    await engine.process(self.case.id_bytes).signal(name, text, key=key)

                async def call(engine: Engine, name: str = node.name, text: str = text, key: str = key) -> None:
                    with suppress(CallUnanswered):  # who ends has heard it, or does not care
                        try:
                            answer = await engine.process(self.case.id_bytes).call(name, text, key=key, timeout=1.0)
                        except TimeoutError:
                            await self._stored(engine, text)  # what another engine sends next would overtake it
                        else:
                            if answer is not None:
                                self.saw("VIOLATION a call was answered by what nobody has said")

                await self._insist(send if number % 2 else call)
                if number < self.case.noise:
                    await self._make_noise(number + self.case.noise)
        for number in range(self.case.noise // 2):
            await self._make_noise(number + 2 * self.case.noise)

    async def _stored(self, engine: Engine, text: str) -> None:
        """Wait until the process has a letter with this text; this engine writes it as soon as the database answers."""
        wanted = [(self.case.id_bytes, 0)]
        while not any(text.encode() in one.payload for one in await engine.store.messages(wanted, most=BATCH_BYTES)):
            await asyncio.sleep(0.5)

    async def _make_noise(self, number: int) -> None:
        """Send a signal that no program ever hears."""
        key = f"{NOISE}/{number}"
        await self._insist(lambda engine: engine.process(self.case.id_bytes).signal(NOISE, number, key=key))

    async def obey(self, order: Order) -> None:
        """Carry out one order; what the process's status does not allow is no matter."""
        try:
            await self._obey(order)
        except IllegalMove:
            self.saw("a command was refused")

    async def _obey(self, order: Order) -> None:
        case, facts, by = self.case, self.case.facts, {"who": "Ann", "why": WHY}
        id = case.id_bytes
        match order.verb:
            case "cancel" | "cancel soon":
                facts.cancelled = True
                deadline = 0.5 if order.verb == "cancel soon" else None
                facts.terminated |= deadline is not None
                self.ledger.wishes[case.id] += await self._counted(
                    "cancel", lambda engine: engine.process(id).cancel(deadline=deadline, **by)
                )
            case "hold":
                await self._counted("hold", self._hold)
                await asyncio.sleep(5.0 * order.choice)
                await self._once(lambda engine: engine.process(id).resume(**by))
            case "terminate":
                facts.terminated = True
                await self._counted("terminate", self._terminate)
            case "restart":
                self.ledger.begins_anew(case.id)
                await self._counted("restart", lambda engine: engine.process(id).restart(**by))
            case "restart_from" | "set_result" | "skip":
                await self._once(lambda engine: self._at_a_step(engine, order))
            case "retry":
                self.ledger.mended.add(case.id)
                facts.mended = True
                if order.choice % 2:
                    await self._resting()
                await self._once(lambda engine: engine.process(id).retry(**by))
            case "duplicate":
                await self.start()
            case "conflict":
                await self._once(self._conflict)

    async def _resting(self) -> None:
        """Wait for a while until nothing moves any more: only then is there something to be tried again."""

        async def look(engine: Engine) -> None:
            rows.append(await engine.row(self.case.id_bytes))

        rows: list[Process] = []
        for _ in range(RESTING_LOOKS):
            await self._once(look)
            if rows and rows[-1].status is not Status.RUNNING:
                return
            await asyncio.sleep(1.0)

    async def _terminate(self, engine: Engine) -> None:
        before = await engine.row(self.case.id_bytes)
        try:
            await engine.process(self.case.id_bytes).terminate(who="Ann", why=WHY)
        except IllegalMove as refusal:
            row = await engine.row(self.case.id_bytes)
            # Where the run is another one, it had ended, and somebody else has opened it again since.
            if "kept changing" not in str(refusal) and not row.final and row.run == before.run:
                self.saw("VIOLATION a process that had not ended could not be terminated")
            raise

    async def _hold(self, engine: Engine) -> None:
        row = await engine.row(self.case.id_bytes)
        await engine.process(self.case.id_bytes).hold(who="Ann", why=WHY)
        if row.owner is not None:
            self.saw("a process in hand was held")

    async def _conflict(self, engine: Engine) -> None:
        try:
            await engine.start(NamedWorkflow(self.case.kind).options(key=self.case.key), Program(Do("other")))
        except KeyConflict:
            self.saw("a start with another input was refused")
        else:
            self.saw("VIOLATION a key was given to two inputs")

    async def _at_a_step(self, engine: Engine, order: Order) -> None:
        """Choose a step that the history tells of; where code may change or begin anew, none is safe to name."""
        program = self.case.program
        if program.rounds > 1 or any(isinstance(node, Way) for node in nodes(program.body)):
            return
        history = await engine.process(self.case.id_bytes).history()
        answered = {(e.name, e.place) for e in history if e.type is EventType.STEP_COMPLETED}
        if order.verb == "restart_from":
            found = [e for e in history if e.type is EventType.STEP_COMPLETED and _own(e)]
        else:
            found = [e for e in history if e.type in _ASKED_FOR and _own(e) and (e.name, e.place) not in answered]
        if not found:
            return
        chosen = found[order.choice % len(found)]
        step, by = f"{chosen.name}:{chosen.place}", {"who": "Ann", "why": WHY}
        if order.verb == "restart_from":
            self.ledger.begins_anew(self.case.id)
            await engine.process(self.case.id_bytes).restart_from(step, **by)
            return
        self.case.facts.by_hand = True
        if order.verb == "skip":
            await engine.process(self.case.id_bytes).skip(step, **by)
        else:
            await engine.process(self.case.id_bytes).set_result(step, BY_HAND, **by)

    async def _once(self, ask: Ask) -> None:
        """Ask one engine; whether it has happened may stay unknown."""
        await answered(self.reach(ask))

    async def _counted(self, verb: str, ask: Ask) -> bool:
        """Ask once for what leaves one mark in the records: it was done if we are told so, and never more often."""
        self.case.ordered[verb] += 1
        told = await answered(self.reach(ask))
        self.case.told[verb] += told
        return told

    async def _insist(self, ask: Ask) -> None:
        """Ask one engine after the other until one has answered."""
        while not await answered(self.reach(ask)):
            await asyncio.sleep(0.5)


_ASKED_FOR = frozenset({EventType.ATTEMPT_FAILED, EventType.STEP_FAILED, EventType.CHILD_STARTED})


def _own(event: Event) -> bool:
    return event.name in ("act", "book") and undo.undoes(event.place) is None


async def answered(asked: Awaitable[Any]) -> bool:
    """Whether an answer has come; a refusal by status or key is one too, and is raised; no record of ours is bad."""
    try:
        async with asyncio.timeout(PATIENCE):
            await asked
    except (IllegalMove, KeyConflict, BadRecord):
        raise
    except (PerdureError, TimeoutError, NodeKilled):
        return False
    return True
