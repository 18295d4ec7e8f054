"""A note: what workers keep in the database for each other and for people, under a name, as JSON.

Each change is written over the version that was read, so of two writers one wins. A note is knowledge about the work
and never the work itself: one that is lost or cannot be read counts as none. A note into which several people put
something is not written over if it cannot be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from msgspec import Struct, json

from perdure.errors import PayloadError
from perdure.kernel.stored import MALFORMED

ALERT_RULE = "alert rule "
"""A note whose name begins with this holds the alert rule that is named behind it."""
RETENTION = "retention"
"""The name of the note that says how far retention has come."""
RULES_COUNT = 24 * 3600 * 1_000_000
"""Microseconds for which that note counts, and for which the place of a rule is kept that no worker has any more."""
ContentT = TypeVar("ContentT", bound=Struct)


class Note(Struct, frozen=True, gc=False):
    """One row of the table ``note``. ``changed_at`` is microseconds by the store's clock, ``content`` is JSON."""

    name: str
    version: int = 0
    changed_at: int = 0
    content: str = "{}"

    def read(self, type: type[ContentT]) -> ContentT:
        """The content; one that cannot be read is as it would be in a note that was never written."""
        try:
            return json.decode(self.content, type=type)
        except MALFORMED:
            return type()

    def read_strictly(self, type: type[ContentT]) -> ContentT:
        """The content, for a caller who shows it or writes all of it back; raises PayloadError if it cannot be read."""
        try:
            return json.decode(self.content, type=type)
        except MALFORMED as error:
            raise PayloadError(
                f"the note {self.name!r} in the database cannot be read: {error}. Nothing was changed. If a newer "
                "Perdure has written it, use that one; if it is damaged, restore its row of table `note`, or delete it"
            ) from None

    def next(self, content: Struct, now: int) -> Note:
        """The note with this content, as the version that follows this one."""
        return Note(self.name, self.version + 1, now, json.encode(content).decode())

    def written(self, notes: Mapping[str, Note], *, answered: bool) -> bool | None:
        """Whether this change was written, by the notes as they were read after it; ``answered``: as its answer.

        None: nobody knows, as its answer was lost and others have changed the note since then.
        """
        found = notes.get(self.name)
        if found == self:
            return True
        return False if answered or found is None or found.version <= self.version else None
