"""Records on their way into a sealed store and out again: each payload sealed for its place, opened when it is read.

A payload that cannot be opened is handed on as it is, with the reason.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any, TypeVar

from msgspec import json
from msgspec.structs import replace

from perdure.errors import BadRecord, PerdureError, StoreUnavailable, UnreadablePayload
from perdure.kernel import context
from perdure.kernel.claim import Claimed
from perdure.kernel.commit import Commit, Start
from perdure.kernel.event import Event
from perdure.kernel.message import Message
from perdure.kernel.names import id_text
from perdure.kernel.process import Process
from perdure.kernel.stored import Undecodable
from perdure.kernel.worker import LeaseRenewal
from perdure.store.sealed import seal
from perdure.store.sealed.blob import Blob, BlobPlace, Fetched
from perdure.store.sealed.seal import Opened, PayloadSlot, PlacedEvent, Seal

RecordT = TypeVar("RecordT", Start, Commit, Message)

LONGEST_DIGEST = 255


class RecordSealer:
    """Seals records by a chain; ``blobs`` collects payloads of more than ``above`` bytes (None: none)."""

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
        """A commit, with what it starts, sends and brings. No commit writes the input, so that is not sealed again."""
        after = commit.after
        return replace(
            commit,
            after=self._fields(replace(after, progress=None) if commit.progress_kept else after),
            events=self._events(after, commit.events),
            starts=tuple(map(self.start, commit.starts)),
            sends=tuple(map(self.message, commit.sends)),
            brings=commit.brings and self.message(commit.brings),
        )

    def message(self, message: Message) -> Message:
        """A message; its blobs belong to the process to which it is sent."""
        sender = message.sender
        if sender is not None and context.of_sender(sender) is not None:
            slot = seal.of_letter_context(message)
            message = replace(message, sender=self._hidden(sender, context.FIELD, slot))
        return replace(message, payload=self._close(message.process, seal.of_message(message), message.payload))

    def renewal(self, renewal: LeaseRenewal) -> LeaseRenewal:
        """A renewal, with the progress that it reports."""
        if renewal.progress is None:
            return renewal
        slot = seal.of_progress(renewal.process)
        return replace(renewal, progress=self._close(renewal.process, slot, renewal.progress))

    def _fields(self, process: Process) -> Process:
        """A row's payloads besides its input. One that could not be opened stays as it was stored, in its place."""
        closed: dict[str, bytes | None] = {}
        for name in seal.FIELDS:
            plain = getattr(process, name)
            if isinstance(plain, Undecodable):
                closed[name] = bytes(plain) or None
            elif plain is not None or (self.seal.hides and seal.OF_AN_END.get(process.status) == name):
                closed[name] = self._close(process.id, seal.of_field(name, process), plain)
        shown = process.attributes
        if shown is not None and context.of_attributes(shown) is not None:
            closed["attributes"] = self._hidden(shown, context.ATTRIBUTE, seal.of_context(process))
        return replace(process, **closed) if closed else process

    def _hidden(self, raw: bytes, name: str, slot: PayloadSlot) -> bytes:
        """Attributes, or a sender, with the context in them sealed; one that could not be opened stays as it is."""
        text: str = json.decode(raw)[name]
        if context.is_open(text):
            text = b64encode(self.seal.close(text.encode(), slot)).decode()
        return context.with_text(raw, name, text)

    def _events(self, process: Process, events: tuple[Event, ...]) -> tuple[Event, ...]:
        return tuple(self._event(event, process.id, process.run) for event in events)

    def _event(self, event: Event, process: bytes, run: int) -> Event:
        """An event. Its digest would confirm a right guess of the arguments: so it is hidden with the payload."""
        plain = event.payload
        if plain is None and not self.seal.hides:
            return event
        slot = seal.of_event(process, run, event)
        digest = event.digest
        if digest is None or not self.seal.hides or not 0 < len(digest) <= LONGEST_DIGEST:
            return replace(event, payload=self._close(process, slot, plain))
        return replace(event, payload=self._close(process, slot, plain, digest), digest=None)

    def _close(self, process: bytes, slot: PayloadSlot, plain: bytes | None, digest: bytes | None = None) -> bytes:
        if isinstance(plain, Undecodable):
            raise BadRecord(f"a payload of process {id_text(process)} would have to be written again, but {plain.why}")
        raw = self.seal.close(plain, slot, digest)
        if self.above is None or len(raw) <= self.above or plain is None:
            return raw
        reference = seal.reference(raw)
        self.blobs.append(Blob(process, reference[2:34].hex(), raw))
        return reference


class RecordOpener:
    """Opens records by a chain. Blobs are taken from ``fetched``; those that are missing there become ``wanted``.

    ``offload`` says whether there is an offload from which they could be fetched.
    """

    def __init__(self, chain: Seal, *, offload: bool) -> None:
        self.seal = chain
        self.offload = offload
        self.fetched: Fetched = {}
        self.wanted: set[BlobPlace] = set()

    def claimed(self, claimed: Claimed) -> Claimed:
        """What a claim took: a row, its run's events, its messages."""
        process = claimed.process
        return replace(
            claimed,
            process=self.process(process),
            events=tuple([self.event(event, process.id, process.run) for event in claimed.events]),
            messages=tuple(map(self.message, claimed.messages)),
        )

    def process(self, process: Process) -> Process:
        """A row."""
        id = process.id
        opened = {"input": self._open(process.input, id, seal.of_input(process), "the input").plain}
        for name in seal.FIELDS:
            raw = getattr(process, name)
            if raw is not None or seal.OF_AN_END.get(process.status) == name:
                opened[name] = self._open(raw, id, seal.of_field(name, process), f"the {name}").plain
        hidden = process.attributes
        if hidden is not None and context.of_attributes(hidden) is not None:
            opened["attributes"] = self._shown(hidden, context.ATTRIBUTE, id, seal.of_context(process))
        return replace(process, **opened)

    def _shown(self, raw: bytes, name: str, process: bytes, slot: PayloadSlot) -> bytes:
        """Attributes, or a sender, with the context in them opened; one that cannot be opened stays as it is."""
        text: str = json.decode(raw)[name]
        sealed = text.encode() if context.is_open(text) else b64decode(text)
        plain = self._open(sealed, process, slot, "the context").plain
        known = plain is not None and not isinstance(plain, Undecodable)
        return context.with_text(raw, name, plain.decode()) if known and plain else raw

    def event(self, event: Event, process: bytes, run: int) -> Event:
        """An event, with the digest that was hidden in it."""
        what = f"event {event.number}"
        opened = self._open(event.payload, process, seal.of_event(process, run, event), what)
        if opened.digest is None:
            return replace(event, payload=opened.plain)
        return replace(event, payload=opened.plain, digest=opened.digest)

    def placed(self, one: PlacedEvent) -> PlacedEvent:
        """An event of one of many histories."""
        return replace(one, event=self.event(one.event, one.process, one.run))

    def message(self, message: Message) -> Message:
        """A message."""
        what = f"message {message.number}"
        opened = self._open(message.payload, message.process, seal.of_message(message), what)
        sender = message.sender
        if sender is not None and context.of_sender(sender) is not None:
            sender = self._shown(sender, context.FIELD, message.process, seal.of_letter_context(message))
        return replace(message, payload=opened.plain, sender=sender)

    def _open(self, raw: bytes | None, process: bytes, slot: PayloadSlot, what: str) -> Opened:
        """Open a payload; None, for no payload, is valid unless all must be sealed."""
        sealed: bytes | PerdureError | None = raw
        name = seal.named(raw)
        if raw is not None and name is not None:
            sealed = self._outside((process, name), raw)
        if not isinstance(sealed, PerdureError):
            try:
                return self.seal.open(sealed, slot)
            except UnreadablePayload as error:
                sealed = error
            except Exception as error:  # whatever a user's own codec raises
                sealed = UnreadablePayload(f"its codec failed with {type(error).__name__}; correct the codec")
        kind = StoreUnavailable if isinstance(sealed, StoreUnavailable) else UnreadablePayload
        why = kind(f"{what} of process {id_text(process)} cannot be opened: {sealed}")
        return Opened(Undecodable(raw or b"", why, seal.size(raw or b"")))

    def _outside(self, place: BlobPlace, raw: bytes) -> bytes | PerdureError:
        """A blob, if it was fetched."""
        blob = self.fetched.get(place)
        if blob is not None:
            return blob
        if not self.offload:
            return UnreadablePayload(
                "it is kept outside the database, and no offload is configured here. Give this engine the same one as "
                "the others; if its process is broken by now, run `perdure retry` then."
            )
        self.wanted.add(place)
        return UnreadablePayload(
            f"its {seal.size(raw):,} bytes are kept outside the database and are not fetched for lists; look at it by "
            "itself"
        )
