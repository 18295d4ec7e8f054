"""Sinks: where workers deliver an event stream to, chosen by the scheme of its URL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from urllib.parse import urlsplit

from perdure.errors import InvalidInput
from perdure.streaming.record import StreamRecord


class Sink(Protocol):
    """Takes batches of records, in order."""

    async def deliver(self, stream: str, records: Sequence[StreamRecord]) -> None:
        """Hand over a batch; it was taken when this returns, and comes again after any error."""

    async def close(self) -> None:
        """Let go of connections."""


def sink_for(url: str) -> Sink:
    """The sink of a URL, not connected yet; raises InvalidInput, which does not show the URL: it may hold a secret."""
    scheme = urlsplit(url).scheme if isinstance(url, str) else ""
    if scheme in ("http", "https"):
        from perdure.streaming.webhook_sink import WebhookSink

        return WebhookSink(url)
    if scheme in ("redis", "rediss"):
        from perdure.streaming.redis_sink import RedisSink

        return RedisSink(url)
    raise InvalidInput("where an event stream goes is no URL that is known. Give https://… or redis://…")


def place_of(url: str) -> str:
    """The URL for people: scheme and host, without what may be secret. Empty for none."""
    if not url:
        return ""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")
