"""The seal: a chain of codecs applied to a payload, with a header that says how it is to be opened.

A stored payload is either JSON, as it always was, or begins with the byte C1, which no text begins with, and then::

    C1 01  length of the digest, number of codecs, for each: length, name, length, note; then the sealed bytes
    C1 03  the same
    C1 04  the same, where there is no payload: so that no payload can be removed unnoticed
    C1 02  SHA-256 (32 bytes) and length (8 bytes) of a blob kept outside, which is one of the two

The header and the slot of a payload are its context: the place where it is kept (its process, and which field, event
or message), and in forms 03 and 04 also what the row says of it: type, name, place, sender, or the status of an end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import product
from typing import NamedTuple

from msgspec import Struct

from perdure.errors import DefinitionError, UnreadablePayload
from perdure.kernel.claim import Claimed
from perdure.kernel.commit import Commit, Start
from perdure.kernel.event import ANSWERS, Event
from perdure.kernel.message import Message
from perdure.kernel.names import is_debounced
from perdure.kernel.process import FINAL, Process, Status, former_key
from perdure.kernel.stored import MARK
from perdure.store.sealed.codec import Codec

SEALED = MARK + b"\x01"
OUTSIDE = MARK + b"\x02"
SEALED_AS_SAID = MARK + b"\x03"
SEALED_NOTHING = MARK + b"\x04"
REFERENCE_BYTES = len(OUTSIDE) + 32 + 8

FIELDS = ("state", "progress", "result", "error")
"""The payloads that a row holds besides its input."""
OF_AN_END = {Status.COMPLETED: "result", Status.FAILED: "error", Status.CANCELLED: "error"}
"""The field that an ended process must have: without its seal nothing proves that end."""


class PayloadSlot(NamedTuple):
    """Where a payload is kept, and what the row ``says`` of it, if the seal covers that too.

    A payload that was sealed before form 03 existed fits its ``place`` alone.
    """

    place: bytes
    says: bytes | None = None

    def context(self, form: bytes) -> bytes:
        """The context of a payload that is sealed here in this form."""
        if form == SEALED:
            return self.place
        return self.place + (b"\0nothing\0" if form == SEALED_NOTHING else b"\0says\0") + (self.says or b"")


class Opened(Struct, frozen=True, gc=False):
    """What a sealed payload held: the plain bytes, and the digest that was sealed with them, if any."""

    plain: bytes | None
    digest: bytes | None = None


class Seal:
    """The codecs in the order in which a payload goes through them; raises DefinitionError if two have one name."""

    def __init__(self, codecs: Sequence[Codec] = ()) -> None:
        self.codecs = tuple(codecs)
        self._by_name = {codec.name.encode(): codec for codec in codecs}
        if len(self._by_name) != len(self.codecs):
            raise DefinitionError(f"two of the codecs {list(codecs)} have the same name. Give each codec once.")
        self.hides = any(codec.hides for codec in codecs)
        self._required = {codec.name for codec in codecs if codec.required}

    def close(self, plain: bytes | None, slot: PayloadSlot, digest: bytes | None = None) -> bytes:
        """Seal a payload, or None for no payload, for its slot; ``digest``, if given, is sealed with it."""
        form = SEALED_NOTHING if plain is None else SEALED if slot.says is None else SEALED_AS_SAID
        context = slot.context(form)
        layers: list[bytes] = []
        body = (digest or b"") + (plain or b"")
        head = bytes([0 if digest is None else len(digest)])
        for codec in self.codecs:
            sealed = codec.seal(body, context + head + b"".join(layers))
            if sealed is not None:
                note, body = sealed
                name = codec.name.encode()
                layers.append(bytes([len(name)]) + name + bytes([len(note)]) + note)
        if not layers and digest is None and plain is not None and plain[:1] != MARK:
            return plain
        return b"".join((form, head, bytes([len(layers)]), *layers, body))

    def open(self, raw: bytes | None, slot: PayloadSlot) -> Opened:
        """Open what :meth:`close` sealed, or pass on what was never sealed; raises UnreadablePayload."""
        if raw is None or raw[:1] != MARK:
            self._check_required(set())
            return Opened(raw)
        digest_bytes, layers, body = self._parsed(raw)
        self._check_required({name.decode(errors="replace") for name, _, _ in layers})
        context = slot.context(raw[:2])
        for place in range(len(layers) - 1, -1, -1):
            name, note, _ = layers[place]
            codec = self._by_name.get(name)
            if codec is None:
                raise UnreadablePayload(
                    f"it went through the codec {name.decode(errors='replace')!r}, which this engine does not have. "
                    "Add it to the codecs; if its process is broken by now, run `perdure retry` then."
                )
            before = b"".join(layer for _, _, layer in layers[:place])
            body = codec.open(note, body, context + raw[2:3] + before)
        if digest_bytes > len(body):
            raise _damaged()
        return Opened(None if raw[:2] == SEALED_NOTHING else body[digest_bytes:], body[:digest_bytes] or None)

    def _check_required(self, applied: set[str]) -> None:
        missing = self._required - applied
        if missing:
            raise UnreadablePayload(
                f"it did not go through {', '.join(sorted(missing))}, which is required here: it was stored before "
                "that was required, or by another program. Set `required` to False, or restore the row."
            )

    def _parsed(self, raw: bytes) -> tuple[int, list[tuple[bytes, bytes, bytes]], bytes]:
        """The length of the digest, the layers (name, note, and both as stored), and the sealed bytes."""
        if raw[:2] not in (SEALED, SEALED_AS_SAID, SEALED_NOTHING):
            raise _damaged()
        try:
            at, layers = 4, []
            for _ in range(raw[3]):
                begin = at
                name, at = _taken(raw, at)
                note, at = _taken(raw, at)
                layers.append((name, note, raw[begin:at]))
            return raw[2], layers, raw[at:]
        except IndexError:
            raise _damaged() from None

    def former(self) -> Iterator[Seal]:
        """Every chain that may have sealed earlier: with other keys first, or without one of the codecs."""
        ways = [(codec, *codec.former()) if codec.required else (codec, *codec.former(), None) for codec in self.codecs]
        for way in product(*ways):
            chain = [codec for codec in way if codec is not None]
            if chain != list(self.codecs):
                yield Seal(chain)


def _taken(raw: bytes, at: int) -> tuple[bytes, int]:
    """The bytes at a place that holds their length first, and where they end; raises IndexError."""
    end = at + 1 + raw[at]
    if end > len(raw):
        raise IndexError
    return raw[at + 1 : end], end


def _damaged() -> UnreadablePayload:
    return UnreadablePayload("its header is damaged, or was written by a newer Perdure. Upgrade, or restore the row.")


# -- blobs -----------------------------------------------------------------------------------------------------------


def reference(blob: bytes) -> bytes:
    """The bytes that the row holds in place of a blob that is kept outside."""
    return OUTSIDE + sha256(blob).digest() + len(blob).to_bytes(8, "big")


def named(raw: bytes | None) -> str | None:
    """The name of the blob that a stored payload stands for, or None if it stands for itself."""
    return raw[2:34].hex() if raw is not None and raw[:2] == OUTSIDE and len(raw) == REFERENCE_BYTES else None


def size(raw: bytes) -> int:
    """How many bytes a stored payload takes where it is kept, in the database or outside."""
    return len(raw) if named(raw) is None else int.from_bytes(raw[-8:], "big")


def payloads(process: Process, events: Iterable[Event], messages: Iterable[Message]) -> Iterator[bytes | None]:
    """Every payload of these records."""
    yield process.input
    for name in FIELDS:
        yield getattr(process, name)
    for event in events:
        yield event.payload
    for message in messages:
        yield message.payload


class PlacedEvent(Struct, frozen=True, gc=False):
    """An event, with the process and the run to which it belongs."""

    process: bytes
    run: int
    event: Event


def weight(record: Start | Commit | Message | Claimed | Process | Event | PlacedEvent) -> int:
    """About how many bytes there are to seal or open in a record."""
    if isinstance(record, PlacedEvent):
        record = record.event
    if isinstance(record, Message | Event):
        return len(record.payload or b"")
    if isinstance(record, Process):
        return sum(len(raw or b"") for raw in payloads(record, (), ()))
    if isinstance(record, Claimed):
        return sum(len(raw or b"") for raw in payloads(record.process, record.events, record.messages))
    if isinstance(record, Start):
        return sum(len(raw or b"") for raw in payloads(record.process, record.events, record.messages))
    sent = record.sends if record.brings is None else (*record.sends, record.brings)
    own = sum(len(raw or b"") for raw in payloads(record.after, record.events, sent))
    return own + sum(map(weight, record.starts))


# -- places ----------------------------------------------------------------------------------------------------------


def of_input(process: Process) -> PayloadSlot:
    """Where an input is kept. One with a key belongs to the key: a second start must seal to the same bytes.

    One whose key was released was sealed for it. A debounced start is compared with no other, and its process gives the
    key back.
    """
    key = former_key(process) if process.key is None else process.key
    if key is None or is_debounced(key):
        return PayloadSlot(b"input\0" + process.id, _said(process.kind))
    kind = _text(process.kind)
    return PayloadSlot(b"input of key\0" + len(kind).to_bytes(4, "big") + kind + _text(key))


def of_field(name: str, process: Process) -> PayloadSlot:
    """Where another field of a row is kept; an ended process's result or error fits that end of that run only."""
    if process.status in FINAL and name in ("result", "error"):
        return PayloadSlot(_field(name, process.id), _said(process.status.value, process.run))
    return PayloadSlot(_field(name, process.id))


def of_progress(process: bytes) -> PayloadSlot:
    """Where the progress that a renewal reports is kept."""
    return PayloadSlot(_field("progress", process))


def of_event(process: bytes, run: int, event: Event) -> PayloadSlot:
    """Where an event's payload is kept; an answer belongs to its call, in whichever run it is looked for."""
    says = _said(int(event.type), event.name, event.place, event.message)
    if event.type in ANSWERS:
        return PayloadSlot(b"answer\0" + process + _text(event.name), says)
    return PayloadSlot(b"event\0" + process + _number(run) + _number(event.number), says)


def of_message(message: Message) -> PayloadSlot:
    """Where a message's payload is kept; its number is not known when it is sent."""
    says = _said(int(message.type), message.name, message.key, message.sender)
    return PayloadSlot(b"message\0" + message.process + message.id, says)


def of_context(process: Process) -> PayloadSlot:
    """Where the context of a process is kept."""
    return PayloadSlot(_field("context", process.id))


def of_letter_context(message: Message) -> PayloadSlot:
    """Where the context that came with a message is kept."""
    return PayloadSlot(b"context\0" + message.process + message.id)


def _number(number: int) -> bytes:
    """A number of a row as 8 bytes; one that is too large, as in no row of ours, gives another context too."""
    if -(1 << 63) <= number < 1 << 63:
        return number.to_bytes(8, "big", signed=True)
    return _text(str(number))


def _field(name: str, process: bytes) -> bytes:
    return name.encode() + b"\0" + process


def _said(*fields: str | bytes | int | None) -> bytes:
    """What a row says, so that no two rows that say different things give the same bytes."""
    parts = []
    for field in fields:
        if field is None:
            parts.append(b"-")
            continue
        raw = field if isinstance(field, bytes) else _text(str(field))
        parts.append(b"+" + len(raw).to_bytes(4, "big") + raw)
    return b"".join(parts)


def _text(text: str) -> bytes:
    return text.encode(errors="surrogatepass")  # what no store can keep is refused by the store
