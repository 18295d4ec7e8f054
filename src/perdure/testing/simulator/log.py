"""The log of a history: what happened when, to whom, in words; the same seed writes the same log byte for byte."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from perdure.clock import SECOND
from perdure.kernel.event import Event
from perdure.kernel.process import Process
from perdure.testing.clock import NOON
from perdure.testing.simulator.life import Life

if TYPE_CHECKING:
    from perdure.testing.simulator.loop import SimLoop

Change = tuple[str, Process | None, Process | None, Sequence[Event]]
"""The door, the row before, the row after, and the events that were appended."""


class Log:
    """Entries are kept as they are, and put into words only when a log is read: most logs never are."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._entries: list[tuple[float, str, str | Change]] = []
        self._names: dict[bytes, str] = {}
        self._owners: dict[bytes, str] = {}

    def note(self, who: str, text: str) -> None:
        """Something has happened."""
        self._entries.append((self._loop.now, who, text))

    def fault(self, life: Life, door: str, fault: str) -> None:
        """A call to the store meets a fault."""
        self._entries.append((self._loop.now, life.name, f"! {door}: {fault}"))

    def change(
        self, life: Life, door: str, before: Process | None, after: Process | None, fresh: Sequence[Event]
    ) -> None:
        """A transaction has changed a process."""
        if after is not None and after.owner is not None and after.owner not in self._owners:
            self._owners[after.owner] = life.name
        self._entries.append((self._loop.now, life.name, (door, before, after, fresh)))

    def entries(self) -> Iterator[tuple[float, str, str]]:
        """What was noted: when, of whom, what; without the transactions."""
        return ((at, who, entry) for at, who, entry in self._entries if isinstance(entry, str))

    def lines(self) -> Iterator[str]:
        """The log in words, a line for each entry."""
        for at, who, entry in self._entries:
            text = entry if isinstance(entry, str) else self._told(*entry)
            yield f"{at:11.6f}  {who:<14} {text}"

    def digest(self) -> str:
        """A short name of everything that happened."""
        digest = hashlib.blake2b(digest_size=12)
        for line in self.lines():
            digest.update(line.encode() + b"\n")
        return digest.hexdigest()

    def called(self, process: Process) -> str:
        """What people call a process here."""
        name = self._names.get(process.id)
        if name is None:
            name = f"{process.kind} {process.key or f'#{len(self._names) + 1}'}"
            self._names[process.id] = name
        return name

    def _told(self, door: str, before: Process | None, after: Process | None, fresh: Sequence[Event]) -> str:
        """A transaction in words: what was done to which process, how it is now, and whose it is until when."""
        if after is None:
            return f"{_VERBS.get(door, door)} {self.called(before) if before is not None else 'a process'}: it is gone"
        parts = [f"{_VERBS.get(door, door)} {self.called(after)}:"]
        for event in fresh:
            place = f" {event.name} {event.place}".rstrip()
            parts.append(f"{event.number} {event.type.name.lower().replace('_', ' ')}{place},")
        if before is None or (before.status, before.run) != (after.status, after.run):
            parts.append(f"{after.status} in run {after.run},")
        if after.inbox or after.seen:
            parts.append(f"{after.seen} of {after.inbox} messages seen,")
        if after.deaths or after.alone_deaths:
            parts.append(f"{after.deaths} deaths, {after.alone_deaths} of them alone,")
        until = "" if after.due_at is None else f" until {(after.due_at - NOON) / SECOND:.6f}"
        if after.owner is not None:
            parts.append(f"with {self._owners.get(after.owner, '?')}{until}")
        elif after.due_at is not None:
            parts.append(f"{'reminder' if after.reminder else 'due'} at{until.removeprefix(' until')}")
        else:
            parts.append("for good")
        parts.append(f"(token {after.token}, version {after.version})")
        return " ".join(parts)


_VERBS = {
    "start": "stores",
    "claim": "claims",
    "commit": "commits",
    "send": "sends to",
    "beat": "renews",
    "prune": "removes",
}
"""What a transaction through a door is called."""
