"""The sink that adds each record to a stream of Redis, under its position, so that none stands there twice.

Needs the extra ``perdure[redis]``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit, urlunsplit

from perdure.errors import InvalidInput, PerdureError
from perdure.streaming.record import StreamRecord

_OPTIONS = {"stream", "maxlen"}
_STANDS_THERE = "equal or smaller"
_HALF = 2**63
_AT_LEAST = 10_000
"""A shorter stream could lose a record before it is compared with the one that comes again."""


class Diverged(PerdureError):
    """The stream of Redis holds other records where these belong."""


class RedisSink:
    """``redis://host:6379/0?stream=audit&maxlen=1000000``: the key (default ``perdure:`` and the name), and its bound.

    What each method promises stands in ``streaming/sink.py``. Raises InvalidInput for a wrong URL, and without the
    extra.
    """

    def __init__(self, url: str) -> None:
        try:
            from redis.asyncio import Redis
        except ImportError:
            raise InvalidInput("Redis needs an extra. Install it: pip install 'perdure[redis]'.") from None
        parts = urlsplit(url)
        try:
            given = parse_qs(parts.query, strict_parsing=bool(parts.query))
            wrong = bool(given.keys() - _OPTIONS) or any(len(values) > 1 for values in given.values())
            right = bool(parts.hostname) and parts.port != 0 and not wrong
        except ValueError:
            right = False
        self._key = given["stream"][0] if right and "stream" in given else ""
        most = given["maxlen"][0] if right and "maxlen" in given else ""
        if not right or (most and not (re.fullmatch(r"\d{1,18}", most) and int(most) >= _AT_LEAST)):
            raise InvalidInput(
                "what was given is no URL of Redis. Write redis://host:6379/0?stream=KEY&maxlen=N; stream and maxlen "
                f"may be left out, and maxlen is at least {_AT_LEAST:,}."
            )
        self._most = int(most) if most else None
        self._redis: Any = Redis.from_url(
            urlunsplit(parts._replace(query="")), socket_timeout=15.0, socket_connect_timeout=15.0
        )

    async def deliver(self, stream: str, records: Sequence[StreamRecord]) -> None:
        """See Sink. All records of a batch are added, or none."""
        key = self._key or f"perdure:{stream}"
        async with self._redis.pipeline(transaction=True) as pipe:
            for record in records:
                id, fields = _entry(record)
                pipe.xadd(key, fields, id=id, maxlen=self._most, approximate=True)
            answers = await pipe.execute(raise_on_error=False)
        for record, answer in zip(records, answers, strict=True):
            if isinstance(answer, Exception):
                if _STANDS_THERE not in str(answer):
                    raise answer
                await self._compare(key, record)

    async def _compare(self, key: str, record: StreamRecord) -> None:
        """A record that comes again stands there already; raises Diverged if another one does."""
        id, fields = _entry(record)
        found = await self._redis.xrange(key, id, id)
        if not found or found[0][1].get(b"event") != fields["event"].encode():
            raise Diverged(
                f"the stream {key} of Redis holds other records from position {record.position} on: this database was "
                "set back, or another one delivers there. Look what is missing, then deliver to another key."
            )

    async def close(self) -> None:
        """See Sink."""
        await self._redis.aclose()


def _entry(record: StreamRecord) -> tuple[str, dict[str, Any]]:
    """The entry's id and fields; ``event`` names the event, whatever else was changed of its process since."""
    event = f"{record.process}/{record.run}/{record.number}/{record.type}"
    fields = {"event": event, "process": record.process, "kind": record.kind, "type": record.type}
    return id_of(record.position), {**fields, "record": record.as_json()}


def id_of(position: int) -> str:
    """Ids of Redis begin above 0-0 and ascend, as positions do; those of what was stored before may be negative."""
    return f"{position}-0" if position > 0 else f"0-{_HALF + position}"
