"""Sealing: records on their way into a store, each payload sealed for its place."""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec.structs import replace

from perdure.errors import BadRecord
from perdure.kernel.commit import Commit, Start
from perdure.kernel.event import Event
from perdure.kernel.message import Message
from perdure.kernel.names import id_text
from perdure.kernel.process import Process
from perdure.kernel.unopened import Unopened
from perdure.kernel.worker import Renewal
from perdure.store import seal
from perdure.store.blob import Blob
from perdure.store.seal import Seal, Slot

Record = TypeVar("Record", Start, Commit, Message)

LONGEST_DIGEST = 255


class Sealing:
    """Seals records by a chain; ``blobs`` gathers what takes more than ``above`` bytes (None: nothing does)."""

    def __init__(self, chain: Seal, above: int | None) -> None:
        self.seal = chain
        self.above = above
        self.blobs: list[Blob] = []

    def record(self, record: Any) -> Any:
        """A start, commit or message with its payloads sealed."""
        if isinstance(record, Commit):
            return self.commit(record)
        return self.start(record) if isinstance(record, Start) else self.message(record)

    def start(self, start: Start) -> Start:
        """A start, with the events of its first turn and its first messages."""
        process = start.process
        input = self._close(process.id, seal.of_input(process), process.input)
        sealed = replace(self._fields(process), input=input)
        messages = tuple(map(self.message, start.messages))
        return replace(start, process=sealed, events=self._events(process, start.events), messages=messages)

    def commit(self, commit: Commit) -> Commit:
        """A commit, with what it starts and sends. No commit writes the input, so that is not sealed again."""
        after = commit.after
        return replace(
            commit,
            after=self._fields(after),
            events=self._events(after, commit.events),
            starts=tuple(map(self.start, commit.starts)),
            sends=tuple(map(self.message, commit.sends)),
        )

    def message(self, message: Message) -> Message:
        """A message; its blobs belong to whom it is sent to."""
        return replace(message, payload=self._close(message.process, seal.of_message(message), message.payload))

    def renewal(self, renewal: Renewal) -> Renewal:
        """A renewal, with the progress that it reports."""
        if renewal.progress is None:
            return renewal
        slot = seal.of_progress(renewal.process)
        return replace(renewal, progress=self._close(renewal.process, slot, renewal.progress))

    def _fields(self, process: Process) -> Process:
        """What a row holds beside its input. What was not opened is kept as it was stored, in the same place."""
        closed: dict[str, bytes | None] = {}
        for name in seal.FIELDS:
            plain = getattr(process, name)
            if isinstance(plain, Unopened):
                closed[name] = bytes(plain) or None
            elif plain is not None or (self.seal.hides and seal.OF_AN_END.get(process.status) == name):
                closed[name] = self._close(process.id, seal.of_field(name, process), plain)
        return replace(process, **closed) if closed else process

    def _events(self, process: Process, events: tuple[Event, ...]) -> tuple[Event, ...]:
        return tuple(self._event(event, process.id, process.run) for event in events)

    def _event(self, event: Event, process: bytes, run: int) -> Event:
        """An event. A digest tells who can guess arguments that he guessed right: it is hidden with the payload."""
        plain = event.payload
        if plain is None and not self.seal.hides:
            return event
        slot = seal.of_event(process, run, event)
        digest = event.digest
        if digest is None or not self.seal.hides or not 0 < len(digest) <= LONGEST_DIGEST:
            return replace(event, payload=self._close(process, slot, plain))
        return replace(event, payload=self._close(process, slot, plain, digest), digest=None)

    def _close(self, process: bytes, slot: Slot, plain: bytes | None, digest: bytes | None = None) -> bytes:
        if isinstance(plain, Unopened):
            raise BadRecord(f"a payload of process {id_text(process)} would have to be written again, but {plain.why}")
        raw = self.seal.close(plain, slot, digest)
        if self.above is None or len(raw) <= self.above or plain is None:
            return raw
        reference = seal.reference(raw)
        self.blobs.append(Blob(process, reference[2:34].hex(), raw))
        return reference
