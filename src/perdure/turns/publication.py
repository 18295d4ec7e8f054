"""A publication: what workflow code shows of its process while it runs: values to read, attributes to search by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from perdure import limits
from perdure.errors import PayloadTooLarge
from perdure.kernel import payload
from perdure.kernel.event import EventType
from perdure.kernel.names import check_name
from perdure.kernel.notice import refuse_reserved
from perdure.turns.current import turn_for

if TYPE_CHECKING:
    from perdure.turns.asking import AskingLoop


class Publication(Struct, frozen=True, gc=False):
    """One published value: from which place of the code, under which name, what; or an answer, named by its call."""

    place: str
    name: str
    payload: bytes
    type: EventType = EventType.PUBLISHED
    digest: bytes | None = None


class Publications:
    """What the code of one process has shown.

    ``fresh`` are the values that the runtime has not taken yet; ``recorded`` are, during a replay, names and places of
    those that the history has. ``attributes`` are all changes of attributes that this run has made, None for a removed
    name; ``untold`` are the changes that the runtime has not taken yet, ``told`` the others.
    """

    __slots__ = ("_bytes", "_count", "_turn", "attributes", "fresh", "recorded", "told", "untold")

    def __init__(self) -> None:
        self.fresh: list[Publication] = []
        self.recorded: set[tuple[str, str]] = set()
        self.attributes: dict[str, Any] = {}
        self.told: dict[str, Any] = {}
        self.untold: dict[str, Any] = {}
        self._turn = 0
        self._count = 0
        self._bytes = 0

    def add(self, publication: Publication, turn: int) -> None:
        """Add a value published in that turn, unless it is recorded; PayloadTooLarge if the turn has too many."""
        if turn != self._turn:
            self._turn, self._count, self._bytes = turn, 0, 0
        count, size = self._count + 1, self._bytes + len(publication.payload)
        too_many = count > limits.PUBLISHED_RECORDS or (count > 1 and size > limits.BATCH_BYTES)
        if too_many and publication.type is EventType.PUBLISHED:  # the code does not decide how many calls come
            raise PayloadTooLarge(
                f"a turn publishes at most {limits.PUBLISHED_RECORDS:,} values of {limits.BATCH_BYTES:,} bytes in all, "
                "since one commit writes them. Put several into one, or await a step in between."
            )
        self._count, self._bytes = count, size
        if self.recorded and (publication.name, publication.place) in self.recorded:
            self.recorded.remove((publication.name, publication.place))
        else:
            self.fresh.append(publication)

    def take_fresh(self) -> list[Publication]:
        """Take the newly published values, except those that the history has; the caller records them."""
        fresh, self.fresh = self.fresh, []
        if self.recorded:
            fresh = [one for one in fresh if (one.name, one.place) not in self.recorded]
            self.recorded.clear()
        return fresh

    def recall(self, name: str, place: str) -> None:
        """Note a published value or an answer of the history: the code gives it again, and it is not written again."""
        self.recorded.add((name, place))

    def take_untold(self) -> dict[str, Any]:
        """Take the changes of attributes that were not taken yet; the caller records them."""
        untold, self.untold = self.untold, {}
        self.told |= untold
        return untold

    def forget(self, names: Iterable[str]) -> None:
        """The code has set these attributes no more: a person has edited them since."""
        for name in names:
            self.attributes.pop(name, None)
            self.untold.pop(name, None)

    def plenty(self, turn: int) -> bool:
        """Whether that turn has published so much that the code should wait for the next turn before it adds more."""
        most = limits.BATCH_BYTES - limits.INSIDE_PAYLOAD_BYTES
        return turn == self._turn and (self._count >= limits.PUBLISHED_RECORDS or self._bytes > most)


def publish(name: str, value: Any) -> None:
    """Append ``value`` to what this process has published under ``name``: with the commit of this turn, and once.

    The engine's ``value`` gives the last one, and its ``values`` gives them all as they come. Raises InvalidKey,
    PayloadError, WorkflowMisuse.
    """
    loop = turn_for("publish")
    check_name(name, "the name of the value")
    raw = payload.encode(value, what=f"the published value {name!r}")
    publication = Publication(loop.place(f" publish {name}"), name, raw)
    if not loop.dead:
        publications_of(loop).add(publication, loop.runs)


def set_attributes(values: Mapping[str, Any] | None = None, /, **named: Any) -> None:
    """Change what this process can be searched by: these names get these values, None removes a name.

    The other attributes stay. A search finds the process by them from the commit of this turn on. Raises InvalidKey,
    PayloadError, WorkflowMisuse.
    """
    loop = turn_for("set_attributes")
    changes = {**(values or {}), **named}
    publications = publications_of(loop)
    refuse_reserved(changes)
    together = publications.attributes | changes
    payload.encode_attributes(together)
    if not loop.dead:
        publications.attributes = together
        publications.untold |= changes


def publications_of(loop: AskingLoop) -> Publications:
    """What the code of this process has shown; made at first use."""
    if loop.publications is None:
        loop.publications = Publications()
        loop.notes = True
    return loop.publications
