"""Opening: records on their way out of a store, each payload opened, or handed on unopened with the reason."""

from __future__ import annotations

from msgspec.structs import replace

from perdure.errors import PerdureError, StoreUnavailable, UnreadablePayload
from perdure.kernel.event import Event
from perdure.kernel.lease import Claimed
from perdure.kernel.message import Message
from perdure.kernel.names import id_text
from perdure.kernel.process import Process
from perdure.kernel.unopened import Unopened
from perdure.store import seal
from perdure.store.blob import Fetched, Place
from perdure.store.seal import Opened, Seal, Slot


class Opening:
    """Opens records by a chain. What is kept outside is taken from ``fetched``; what is not there is ``wanted``.

    ``offload`` says whether there is any from which it could be fetched.
    """

    def __init__(self, chain: Seal, *, offload: bool) -> None:
        self.seal = chain
        self.offload = offload
        self.fetched: Fetched = {}
        self.wanted: set[Place] = set()

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
        return replace(process, **opened)

    def event(self, event: Event, process: bytes, run: int) -> Event:
        """An event, with the digest that was hidden in it."""
        what = f"event {event.number}"
        opened = self._open(event.payload, process, seal.of_event(process, run, event), what)
        if opened.digest is None:
            return replace(event, payload=opened.plain)
        return replace(event, payload=opened.plain, digest=opened.digest)

    def message(self, message: Message) -> Message:
        """A message."""
        what = f"message {message.number}"
        opened = self._open(message.payload, message.process, seal.of_message(message), what)
        return replace(message, payload=opened.plain)

    def _open(self, raw: bytes | None, process: bytes, slot: Slot, what: str) -> Opened:
        """Open a payload; None, where there is none, is good unless all must be sealed."""
        sealed: bytes | PerdureError | None = raw
        name = seal.named(raw)
        if raw is not None and name is not None:
            sealed = self._outside((process, name), raw)
        if not isinstance(sealed, PerdureError):
            try:
                return self.seal.open(sealed, slot)
            except UnreadablePayload as error:
                sealed = error
            except Exception as error:  # a codec that somebody else wrote
                sealed = UnreadablePayload(f"its codec failed with {type(error).__name__}; see to the codec")
        kind = StoreUnavailable if isinstance(sealed, StoreUnavailable) else UnreadablePayload
        return Opened(Unopened(raw or b"", kind(f"{what} of process {id_text(process)} cannot be opened: {sealed}")))

    def _outside(self, place: Place, raw: bytes) -> bytes | PerdureError:
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
