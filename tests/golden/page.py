"""A golden page: a history as a release wrote it, and what its code came to wherever a replay of it may stop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from perdure.authoring.machine.definition import OWN
from perdure.authoring.webhook import webhook
from perdure.authoring.workflow import Workflow
from perdure.kernel.checkpoint import parted
from perdure.kernel.event import Event, EventType
from perdure.kernel.message import Message
from perdure.kernel.process import Process
from perdure.runtime.instance import Instance
from perdure.runtime.replay import Replay
from perdure.turns.loop import TurnLoop
from tests.golden import flow

FOLDER = Path(__file__).parent
Look = dict[str, Any]


class Page(Struct, frozen=True):
    """One run of one process. ``looks`` has for every turn what is open after it, or how the process ended."""

    process: Process
    events: tuple[Event, ...]
    messages: tuple[Message, ...]
    looks: list[Look] = []

    @classmethod
    def of(cls, process: Process, events: Sequence[Event], messages: Sequence[Message]) -> Page:
        """A page without looks."""
        return cls(process, tuple(events), tuple(messages))

    def encode(self) -> bytes:
        """The page as it is kept."""
        return msgspec.json.format(msgspec.json.encode(self, order="deterministic"), indent=1) + b"\n"


def read(path: Path) -> Page:
    """A page that was kept."""
    return msgspec.json.decode(path.read_bytes(), type=Page)


def known() -> list[Workflow[Any, Any]]:
    """The workflows and machines of the golden pages."""
    members = [getattr(member, OWN, member) for member in (*vars(flow).values(), webhook)]
    return [member for member in members if isinstance(member, Workflow)]


def looks(page: Page) -> Iterator[Look]:
    """What today's code comes to after each turn of the page, by the replay that a worker makes."""
    workflow = next(one for one in known() if (one.name, one.version) == (page.process.kind, page.process.code))
    kept = None if workflow.machine is None else page.process.state
    for events in _prefixes(page.events, parted(kept)[0].turn if kept else 0):
        instance = Instance(page.process, workflow, TurnLoop(page.process.id, page.process.id))
        for _ in Replay(instance, events, page.messages).run():
            pass
        yield _look(instance)
        instance.drop()


def checked(page: Page) -> Page:
    """The page with its looks, whose last one must be what the row says."""
    seen = list(looks(page))
    ended = page.process.result is not None
    assert not ended or page.events[-1].type is not EventType.COMPLETED or "result" in seen[-1], seen[-1]
    return replace(page, looks=seen)


def _prefixes(events: tuple[Event, ...], first: int) -> Iterator[tuple[Event, ...]]:
    """The history up to each turn from the ``first`` on, with the evidence that follows it."""
    turns = sorted({event.turn for event in events if event.turn > first} | {first})
    for turn in turns:
        later = (place for place, event in enumerate(events) if event.turn > turn)
        yield events[: next(later, len(events))]


def _look(instance: Instance) -> Look:
    loop = instance.loop
    look: Look = {
        "open": [[ask.name, ask.place, ask.raw.decode()] for ask in loop.open.values()],
        "asked": [[ask.name, ask.place] for ask in instance.steps.asked],
        "timers": [list(timer) for timer in loop.due_timers(1 << 62)],
        "awaiting": loop.awaiting(),
        "state": None if loop.state is None else loop.state.decode(),
        "to write": [[event.type.name, event.name] for event in instance.events],
    }
    if loop.renewal is not None:
        look["continues with"] = loop.renewal.decode()
    elif loop.finished:
        error = loop.failure()
        look |= {"cancelled": True} if loop.cancelled else {}
        look |= {"error": f"{type(error).__name__}: {error}"} if error is not None else {}
        look |= {} if error or loop.cancelled else {"result": loop.result_payload().decode()}
    return msgspec.json.decode(msgspec.json.encode(look))  # type: ignore[no-any-return]
