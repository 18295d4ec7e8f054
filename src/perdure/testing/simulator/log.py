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
    """Entries are kept as they are and put into words only when somebody reads them: most logs nobody reads."""

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
        if after is None:
            return f"{door}: {self.called(before) if before is not None else 'a process'} is removed"
        parts = [f"{door}: {self.called(after)}"]
        if before is None:
            parts.append("is stored")
        if before is None or before.status is not after.status:
            parts.append(f"is {after.status}")
        if before is None or before.run != after.run:
            parts.append(f"run {after.run}")
        parts.append(f"v{after.version} t{after.token}")
        if before is not None and before.owner != after.owner:
            parts.append("is free" if after.owner is None else f"is with {self._owners.get(after.owner, '?')}")
        if after.inbox or after.seen:
            parts.append(f"inbox {after.seen}/{after.inbox}")
        if after.due_at is not None:
            parts.append(f"due {(after.due_at - NOON) / SECOND:.6f}{' (reminder)' if after.reminder else ''}")
        if after.deaths or after.alone_deaths:
            parts.append(f"deaths {after.deaths}+{after.alone_deaths}")
        for event in fresh:
            place = f" {event.name} {event.place}".rstrip()
            parts.append(f"[{event.number} {event.type.name.lower()}{place}]")
        return " ".join(parts)
