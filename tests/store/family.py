"""A family: the children that a script's turns start, and what is tried with commits that send something out."""

from __future__ import annotations

from random import Random

from perdure.clock import SECOND
from perdure.kernel import child
from perdure.kernel.commit import Commit, Start, Verdict
from perdure.kernel.event import Event, EventType
from perdure.kernel.names import id_text
from perdure.kernel.process import Process
from perdure.testing.clock import MovableMachine

PAIRS = (("order", "1"), ("order", "2"), ("refund", "1"), ("ödeme", ""))
"""The kinds and versions of a script's processes, children or not."""


def children(chance: Random, ids: MovableMachine, row: Process, events: list[Event], now: int) -> tuple[Start, ...]:
    """Children that a turn asks for; each is noted among its events."""
    starts = []
    for _ in range(chance.randint(1, 3)):
        kind, code = chance.choice(PAIRS)
        process = Process(
            id=ids.new_id(), kind=kind, key=None, input=b"[1]", code=code, parent=row.id,
            priority=chance.choice((0, 4, 9)), deadline=now + 30 * SECOND if chance.random() < 0.2 else None,
        )  # fmt: skip
        begun = child.ChildBegun(id_text(process.id), chance.random() < 0.3).encode()
        number = row.events + len(events) + 1
        events.append(Event(number, 0, EventType.CHILD_STARTED, now, f"{row.run}.{number}", kind, begun))
        starts.append(Start(process))
    return tuple(starts)


def probes(commit: Commit, verdict: Verdict) -> set[str]:
    """What was tried with a commit that sends something out, or brings it in."""
    found = set()
    if commit.starts:
        found.add(f"children {verdict}")
    if commit.sends:
        found.add(f"messages out {verdict}")
    if commit.brings is not None:
        found.add(f"letter brought {verdict}")
    if any(sent.id == commit.after.id for sent in commit.sends):
        found.add("a child's answer" if verdict is Verdict.APPLIED else "a child's answer not applied")
    return found
