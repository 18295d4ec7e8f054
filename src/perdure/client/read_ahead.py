"""What comes behind a portion of an operation is read while that portion is commanded: the database need not wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from perdure.client.finding.finder import Finder
from perdure.errors import PerdureError

FRESH_SECONDS = 1.0
"""How old a page may be that was read ahead: what has changed since then is judged again, and costs more."""


class ReadAhead:
    """The finder that goes on behind the portion that was selected last, and when it has read its first page."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._behind = "", ""
        self._finder: Finder | None = None
        self._read_at: float | None = None

    def selected(self, operation: str, before: str, finder: Finder) -> None:
        """A portion was selected; ``finder`` finds the next one of the operation, the one ``before`` that process."""
        self._behind, self._finder, self._read_at = (operation, before), finder, None

    @asynccontextmanager
    async def meanwhile(self, operation: str) -> AsyncIterator[None]:
        """Read the page during what is done here, if the portion is one of this operation and was selected here."""
        if self._finder is None or self._read_at is not None or self._behind[0] != operation:
            yield
            return
        reading = asyncio.ensure_future(self._read(self._finder))
        try:
            yield
            await reading
        finally:
            reading.cancel()

    def take(self, operation: str, before: str | None) -> Finder | None:
        """The finder of the portion that begins before that process, if it has read its page just now."""
        finder, self._finder = self._finder, None
        fresh = self._read_at is not None and self._monotonic() - self._read_at < FRESH_SECONDS
        return finder if fresh and self._behind == (operation, before) else None

    async def _read(self, finder: Finder) -> None:
        with suppress(PerdureError):  # then the next portion reads it, and says what is wrong
            await finder.begin()
            if finder is self._finder:
                self._read_at = self._monotonic()
