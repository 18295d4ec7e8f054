"""The seal: a chain of codecs applied to a payload, with a header that says how it is to be opened.

A stored payload is either JSON, as it always was, or begins with the byte C1, which no text begins with, and then::

    C1 01  length of the digest, number of codecs, for each: length, name, length, note; then the sealed bytes
    C1 02  SHA-256 (32 bytes) and length (8 bytes) of a blob kept outside, which is one of the two

The header and the place of a payload (its process, and which field, event or message) are its context.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import product

from msgspec import Struct

from perdure.errors import DefinitionError, UnreadablePayload
from perdure.kernel.commit import Commit, Start
from perdure.kernel.event import ANSWERS, Event
from perdure.kernel.lease import Claimed
from perdure.kernel.message import Message
from perdure.kernel.process import Process
from perdure.kernel.unopened import MARK
from perdure.store.codec import Codec

SEALED = MARK + b"\x01"
OUTSIDE = MARK + b"\x02"
REFERENCE_BYTES = len(OUTSIDE) + 32 + 8

FIELDS = ("state", "progress", "result", "error")
"""The payloads that a row holds beside its input."""


class Opened(Struct, frozen=True, gc=False):
    """What a sealed payload held: itself, and the digest that was put away with it, if one was."""

    plain: bytes
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

    def close(self, plain: bytes, context: bytes, digest: bytes | None = None) -> bytes:
        """Seal a payload for its place; ``digest``, if given, is put away with it."""
        layers: list[bytes] = []
        body = plain if digest is None else digest + plain
        head = bytes([0 if digest is None else len(digest)])
        for codec in self.codecs:
            sealed = codec.seal(body, context + head + b"".join(layers))
            if sealed is not None:
                note, body = sealed
                name = codec.name.encode()
                layers.append(bytes([len(name)]) + name + bytes([len(note)]) + note)
        if not layers and digest is None and plain[:1] != MARK:
            return plain
        return b"".join((SEALED, head, bytes([len(layers)]), *layers, body))

    def open(self, raw: bytes, context: bytes) -> Opened:
        """Open what :meth:`close` sealed, or pass on what was never sealed; raises UnreadablePayload."""
        if raw[:1] != MARK:
            self._check_required(set())
            return Opened(raw)
        digest_bytes, layers, body = self._parsed(raw)
        self._check_required({name.decode(errors="replace") for name, _, _ in layers})
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
        return Opened(body[digest_bytes:], body[:digest_bytes]) if digest_bytes else Opened(body)

    def _check_required(self, applied: set[str]) -> None:
        missing = self._required - applied
        if missing:
            raise UnreadablePayload(
                f"it did not go through {', '.join(sorted(missing))}, which is required here: it was stored before "
                "that was so, or by somebody else. Take `required` back, or restore the row."
            )

    def _parsed(self, raw: bytes) -> tuple[int, list[tuple[bytes, bytes, bytes]], bytes]:
        """The length of the digest, the layers (name, note, and both as they stand there), and the sealed bytes."""
        if raw[:2] != SEALED:
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
    """What stands in the row for a blob that is kept outside."""
    return OUTSIDE + sha256(blob).digest() + len(blob).to_bytes(8, "big")


def named(raw: bytes | None) -> str | None:
    """The name of the blob that a stored payload stands for, or None if it stands for itself."""
    return raw[2:34].hex() if raw is not None and raw[:2] == OUTSIDE and len(raw) == REFERENCE_BYTES else None


def payloads(process: Process, events: Iterable[Event], messages: Iterable[Message]) -> Iterator[bytes | None]:
    """Every payload of these records."""
    yield process.input
    for name in FIELDS:
        yield getattr(process, name)
    for event in events:
        yield event.payload
    for message in messages:
        yield message.payload


def weight(record: Start | Commit | Message | Claimed | Process | Event) -> int:
    """About how many bytes there are to seal or open in a record."""
    if isinstance(record, Message | Event):
        return len(record.payload or b"")
    if isinstance(record, Process):
        return sum(len(raw or b"") for raw in payloads(record, (), ()))
    if isinstance(record, Claimed):
        return sum(len(raw or b"") for raw in payloads(record.process, record.events, record.messages))
    if isinstance(record, Start):
        return sum(len(raw or b"") for raw in payloads(record.process, record.events, record.messages))
    own = sum(len(raw or b"") for raw in payloads(record.after, record.events, record.sends))
    return own + sum(map(weight, record.starts))


# -- places ----------------------------------------------------------------------------------------------------------


def of_input(process: Process) -> bytes:
    """Where an input is kept. One with a key belongs to the key: a second start must seal to the same bytes."""
    if process.key is None:
        return b"input\0" + process.id
    kind = _text(process.kind)
    return b"input of key\0" + len(kind).to_bytes(4, "big") + kind + _text(process.key)


def of_field(name: str, process: bytes) -> bytes:
    """Where another field of a row is kept."""
    return name.encode() + b"\0" + process


def of_event(process: bytes, run: int, event: Event) -> bytes:
    """Where an event's payload is kept; an answer belongs to its call, in whichever run it is looked for."""
    if event.type in ANSWERS:
        return b"answer\0" + process + event.name.encode()
    return b"event\0" + process + run.to_bytes(8, "big") + event.number.to_bytes(8, "big")


def of_message(message: Message) -> bytes:
    """Where a message's payload is kept; its number is not known when it is sent."""
    return b"message\0" + message.process + message.id


def _text(text: str) -> bytes:
    return text.encode(errors="surrogatepass")  # what no store can keep is refused by the store
