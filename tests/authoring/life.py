"""A life: runs a workflow's turns as a worker would, writes down what was delivered, and replays it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from perdure.kernel import payload
from perdure.kernel.message import MessageType
from perdure.turns.ask import Ask
from perdure.turns.loop import TurnLoop
from perdure.turns.patches import patches_of

SECOND = 1_000_000
BIRTH = 1_800_000_000 * SECOND
ID = bytes(range(16))
SEED = b"seed"

Delivery = tuple[Any, ...]
"""("done" | "failed", place, name, digest, payload), ("timer", place) or ("message", type, name, payload)."""


@dataclass
class Seen:
    """What a turn left behind, as far as an outsider can see it."""

    asked: list[tuple[str, str, bytes]]
    dropped: list[tuple[str, str]]
    open: list[tuple[str, str]]
    timers: list[tuple[int, str]]
    awaiting: str
    state: bytes | None
    finished: bool
    outcome: str | None


@dataclass
class Life:
    """One process in memory; ``turns`` is its history: when each turn was, and what it was given."""

    workflow: Any
    args: Sequence[Any] = ()
    loop: TurnLoop = field(init=False)
    now: int = BIRTH
    turns: list[tuple[int, list[Delivery]]] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    signals: int = 0
    patches: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.loop = TurnLoop(ID, SEED)
        self.loop.begin(self.workflow.function, self.args)
        self._run()

    # -- what a worker does ------------------------------------------------------------------------------------

    def turn(self, *deliveries: Delivery, after: float = 0.0) -> Seen:
        """One turn with these deliveries, ``after`` seconds from the last."""
        self.now += round(after * SECOND)
        self.turns.append((self.now, list(deliveries)))
        for delivery in deliveries:
            deliver(self.loop, delivery)
        return self._run()

    def _run(self) -> Seen:
        self.loop.run(self.now)
        if self.loop.patches is not None:
            self.patches |= dict.fromkeys(self.loop.patches.take_fresh(), len(self.turns))
        self.seen.append(look(self.loop))
        return self.seen[-1]

    def answer(self, ask: Ask[Any]) -> Delivery:
        """The delivery of what the step's function gives."""
        try:
            value = ask.step.function(*ask.args, **ask.kwargs)
            if asyncio.iscoroutine(value):
                value = _run_at_once(value)
        except Exception as error:
            return "failed", ask.place, ask.name, ask.digest, ask.step.failure(error, 1).encode()
        return "done", ask.place, ask.name, ask.digest, payload.encode(value)

    def ask(self, name: str, place: str = "1") -> Ask[Any]:
        """The open ask of that name and place."""
        return self.loop.open[name, place]

    def finish_step(self, name: str, place: str = "1", after: float = 0.0) -> Seen:
        """A turn in which one step's answer comes."""
        return self.turn(self.answer(self.ask(name, place)), after=after)

    def fire(self) -> Seen:
        """A turn in which the next timer fires, at its time."""
        when, place = self.loop.next_timer() or (0, "")
        self.now = max(self.now, when)
        return self.turn(("timer", place))

    def signal(self, name: str, value: Any = None, after: float = 0.0) -> Seen:
        """A turn in which a signal comes."""
        return self.turn(("message", MessageType.SIGNAL, name, payload.encode(value)), after=after)

    def cancel(self, after: float = 0.0) -> Seen:
        """A turn in which somebody's wish to cancel comes."""
        return self.turn(("message", MessageType.CANCEL, "", b"null"), after=after)

    def live(self, chance: Random, signals: Sequence[tuple[str, Any]] = (), cancel_at: int | None = None) -> Life:
        """Answer open steps in any order and number until it is finished; fire timers when they are due."""
        waiting = list(signals)
        for number in range(500):
            if self.loop.finished:
                return self
            self._any_turn(chance, waiting, number == cancel_at)
        raise AssertionError(f"it does not end; it awaits {self.loop.awaiting()}")

    def _any_turn(self, chance: Random, signals: list[tuple[str, Any]], cancel: bool) -> None:
        open = list(self.loop.open.values())
        chance.shuffle(open)
        deliveries = [self.answer(ask) for ask in open[: chance.randint(1, 3)]]
        if signals and (not deliveries or chance.random() < 0.3):
            name, value = signals.pop(0)
            deliveries.append(("message", MessageType.SIGNAL, name, payload.encode(value)))
        if cancel:
            deliveries = [("message", MessageType.CANCEL, "", b"null")]
        if not deliveries:
            self.fire()
            return
        self.now += chance.choice([0, 1, SECOND // 10, SECOND])
        due = [("timer", place) for _, place in self.loop.due_timers(self.now)]
        self.turn(*due, *deliveries)

    # -- what a replay does ------------------------------------------------------------------------------------

    def replay(self, turns: int | None = None) -> TurnLoop:
        """A fresh loop that was given the first ``turns`` turns again; each must look as it did in life."""
        loop = TurnLoop(ID, SEED)
        loop.begin(self.workflow.function, self.args)
        self._replay(loop, turns)
        return loop

    def _replay(self, loop: TurnLoop, turns: int | None) -> None:
        recorded = self.turns[:turns]
        fired = {delivery[1] for _, deliveries in recorded for delivery in deliveries if delivery[0] == "timer"}
        if self.patches:
            patches_of(loop).recorded = self.patches
        loop.begin_replay(frozenset(fired), 0 if recorded else None)
        loop.run(BIRTH)
        assert look(loop) == self.seen[0]
        for number, ((now, deliveries), seen) in enumerate(zip(recorded, self.seen[1:], strict=False), 1):
            for delivery in deliveries:
                deliver(loop, delivery)
            loop.replay_turn(number, now)
            assert look(loop) == seen
        loop.end_replay()

    def check_replays(self) -> None:
        """Replay every prefix of the history into a fresh loop, and evict it there."""
        for turns in range(len(self.turns) + 1):
            loop = self.replay(turns)
            loop.evict()
            assert not loop.take_outputs()[0]
            assert not loop.open


def deliver(loop: TurnLoop, delivery: Delivery) -> None:
    """Give the loop one recorded event."""
    kind, *rest = delivery
    if kind in ("done", "failed"):
        place, name, digest, raw = rest
        if (name, place) in loop.open:  # else taken back by an earlier delivery of this turn
            (loop.step_done if kind == "done" else loop.step_failed)(place, name, digest, raw)
    elif kind == "timer":
        if rest[0] in loop.timers.open:
            loop.timer_fired(rest[0])
    else:
        loop.message(*rest)


def look(loop: TurnLoop) -> Seen:
    """What can be seen of a loop; takes the asks, as a worker does."""
    outcome = None
    if loop.finished:
        failure = loop.failure()
        outcome = f"{type(failure).__name__}: {failure}" if failure else "cancelled"
        outcome = outcome if failure or loop.cancelled else loop.result_payload().decode()
    timer = loop.next_timer()
    asks, others = loop.take_outputs()
    return Seen(
        asked=[(ask.name, ask.place, ask.raw) for ask in asks],
        dropped=[(ask.name, ask.place) for ask in others.dropped] if others else [],
        open=list(loop.open),
        timers=loop.due_timers(1 << 62) if timer else [],
        awaiting=loop.awaiting(),
        state=loop.state,
        finished=loop.finished,
        outcome=outcome,
    )


def lived(
    workflow: Any, *args: Any, seeds: int = 20, signals: Callable[[], Sequence[tuple[str, Any]]] = list
) -> set[str]:
    """Live in many orders, replay each life whole and in every prefix; answers the outcomes that there were."""
    outcomes = set()
    for seed in range(seeds):
        life = Life(workflow, args).live(Random(seed), signals())
        life.check_replays()
        outcomes.add(str(life.seen[-1].outcome))
    return outcomes


def cancelled_anywhere(workflow: Any, *args: Any, seeds: int = 10) -> set[str]:
    """Live with a cancel at each possible turn, and replay; answers the outcomes that there were."""
    outcomes = set()
    for seed in range(seeds):
        for turn in range(6):
            life = Life(workflow, args).live(Random(seed), cancel_at=turn)
            life.check_replays()
            outcomes.add(str(life.seen[-1].outcome))
    return outcomes


def _run_at_once(coroutine: Any) -> Any:
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("the steps of these tests await nothing")
