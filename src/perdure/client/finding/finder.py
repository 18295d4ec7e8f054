"""The finder: reads the processes that a query fits, page by page, however many others lie between them.

What the database can narrow by its indexes it narrows (kind, status, key, attribute, time of start); the rest is asked
of each row here, so that errors and attributes may be sealed. The answer is never cut at a number that nobody knows.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

from msgspec.structs import replace

from perdure.client.finding.fields import Candidate, time_of
from perdure.client.finding.grammar import EVERYTHING, Compared, Either, Every, Not, Query, parsed
from perdure.client.finding.saved import expanded
from perdure.client.view import known_workers, standing
from perdure.kernel.child import QUEUE_MARK
from perdure.kernel.process import Process, Status
from perdure.limits import LIST_ROWS
from perdure.store.base import Search, Store

T = TypeVar("T")

_EDGES = {">=": ("from", 0), ">": ("from", 1), "<": ("to", 0), "<=": ("to", 1)}
"""Which end of the times that count a comparison gives, and how many microseconds behind the value it lies."""
_ANSWERED = frozenset({"kind", "status"})
"""What the database answers as exactly as the query asks, so that it is not asked of each row again."""
_OF_TASKS = frozenset({"fingerprint", "id", "parent", "queue"})
"""What a query asks that means queued steps too."""
ASKED = frozenset({"mover", "waiting", "worker"})
"""What a query asks of others than the row itself."""


class Finder:
    """Finds the processes that fit both a search and a query in words, which may name saved searches.

    Whatever finds raises InvalidInput for a wrong query.
    """

    def __init__(self, store: Store, search: Search, where: str, *, asks: bool = False) -> None:
        self.store = store
        self.search = search
        self.where = where
        self.rest: Query = EVERYTHING
        """What is asked of each row that the narrowed search has found."""
        self.behind: bytes | None = None
        """The last row of the last page that was read; None behind the last page."""
        self._asks = asks
        self._first: list[Process] | None = None

    async def read(self) -> Query:
        """Read the query, with the saved searches that it names, and narrow the search by it."""
        query = parsed(await expanded(self.store, self.where))
        fields = fields_of(query)
        self.search, self.rest = narrowed(replace(self.search, tasks=self.search.tasks or asks_for_tasks(query)), query)
        self._asks = self._asks or not ASKED.isdisjoint(fields)
        return query

    async def begin(self) -> list[Process]:
        """Read the query and the first page; :meth:`candidates` goes on from there."""
        await self.read()
        self._first = await self.store.search(replace(self.search, limit=LIST_ROWS))
        return self._first

    async def candidates(self) -> AsyncIterator[list[Candidate]]:
        """All that fits, newest first, as it comes; a page may be empty. The search's limit does not count."""
        async for page in self._pages():
            yield await self._fitting(page)

    async def every(self) -> AsyncIterator[list[Candidate]]:
        """The same for who wants all of it: the database reads the next page while this one is looked at."""
        async for page in ahead(self._pages()):
            yield await self._fitting(page)

    async def first(self) -> list[Process]:
        """The first rows that fit, as many as the search asks for."""
        found: list[Process] = []
        async for page in self.candidates():
            found += [one.row for one in page]
            if len(found) >= self.search.limit:
                return found[: self.search.limit]
        return found

    async def counts(self) -> list[tuple[str, Status, int]]:
        """How many fit, by kind and status."""
        numbers: Counter[tuple[str, Status]] = Counter()
        async for page in self.every():
            numbers.update((one.row.kind, one.row.status) for one in page)
        return [(kind, status, number) for (kind, status), number in sorted(numbers.items())]

    async def _pages(self) -> AsyncIterator[list[Process]]:
        page = await self.begin() if self._first is None else self._first
        self._first = None
        search = replace(self.search, limit=LIST_ROWS)
        while True:
            self.behind = page[-1].id if len(page) == LIST_ROWS else None
            yield page
            if self.behind is None:
                return
            search = replace(search, before_id=self.behind)
            page = await self.store.search(search)

    async def _fitting(self, page: Sequence[Process]) -> list[Candidate]:
        return [one for one in await self._looked_at(page) if self.rest.fits(one)]

    async def _looked_at(self, page: Sequence[Process]) -> list[Candidate]:
        now = await self.store.now()
        if not self._asks:
            return [Candidate(row, now) for row in page]
        workers, queues = await known_workers(self.store), await standing(self.store, page)
        return [Candidate(row, now, workers, queues) for row in page]


async def ahead(every: AsyncIterator[T]) -> AsyncIterator[T]:
    """The same, but the next one is on its way already while the caller works on the one before."""
    coming = asyncio.ensure_future(anext(every, None))
    try:
        while (one := await coming) is not None:
            coming = asyncio.ensure_future(anext(every, None))
            await asyncio.sleep(0)  # else it would begin when the caller waits, which may be much later
            yield one
    finally:
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)


def fields_of(query: Query) -> set[str]:
    """The names of the fields that a query asks for."""
    match query:
        case Every(parts) | Either(parts):
            return set().union(*map(fields_of, parts))
        case Not(part):
            return fields_of(part)
    return {query.field.name}


def asks_for_tasks(query: Query) -> bool:
    """Whether a query means queued steps as well: by what they alone have, or what names single processes.

    So does a comparison with a kind that a queue's may be. Any other query is asked of processes with code alone.
    """
    match query:
        case Every(parts) | Either(parts):
            return any(map(asks_for_tasks, parts))
        case Not(part):
            return asks_for_tasks(part)
        case Compared(field, operator, values) if field.name == "kind":
            return operator == "~" or any(value.startswith((QUEUE_MARK, "*")) for value in values)
    return query.field.name in _OF_TASKS


def narrowed(search: Search, query: Query) -> tuple[Search, Query]:
    """The search, narrowed by what all that fits has in common and the database knows; and what is left to ask."""
    rest: list[Query] = []
    for one in query.parts if isinstance(query, Every) else (query,):
        before = search
        if isinstance(one, Compared):
            search = _narrowed(search, one)
        if search is before or fields_of(one).isdisjoint(_ANSWERED):
            rest.append(one)
    return search, rest[0] if len(rest) == 1 else Every(tuple(rest))


def _started(search: Search, one: Compared) -> Search:
    """Narrowed by the time of the start, at its ends alone."""
    if len(one.values) > 1 or one.operator not in _EDGES:
        return search
    bound, more = _EDGES[one.operator]
    at = time_of(one.values[0]) + more
    if bound == "from":
        return replace(search, created_from=at if search.created_from is None else max(at, search.created_from))
    return replace(search, created_to=at if search.created_to is None else min(at, search.created_to))


def _narrowed(search: Search, one: Compared) -> Search:
    name, values = one.field.name, one.values
    if name == "created":
        return _started(search, one)
    plain = not any("*" in value for value in values)
    if one.operator != "=":
        return search
    if name == "status" and plain and not search.statuses:
        return replace(search, statuses=tuple(Status(value) for value in values))
    if len(values) > 1:
        return search
    [value] = values
    if name == "kind" and plain and search.kind is None:
        return replace(search, kind=value)
    if name == "key" and search.key is None and search.key_prefix is None:
        return replace(search, key=value) if plain else replace(search, key_prefix=value.partition("*")[0])
    return search
