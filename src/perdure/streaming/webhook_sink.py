"""The sink that posts each batch to a URL as one JSON array."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from perdure.authoring import webhook
from perdure.futures import in_thread
from perdure.streaming.record import StreamRecord


class WebhookSink:
    """What each method promises stands in ``streaming/sink.py``; raises InvalidInput for a URL that cannot be used."""

    def __init__(self, url: str) -> None:
        self._url = webhook.checked(url)

    async def deliver(self, stream: str, records: Sequence[StreamRecord]) -> None:
        """See Sink. Everything but an answer of 2xx is an error: a stream gives nothing up."""
        body = b"[" + b",".join(record.as_json() for record in records) + b"]"
        key = f"{stream}/{records[0].position}-{records[-1].position}"
        status = await in_thread(webhook.request, self._url, body, key)
        if not 200 <= status < 300:
            raise webhook.Undelivered(f"{urlsplit(self._url).hostname} answered with status {status}")

    async def close(self) -> None:
        """See Sink. Each batch has a connection of its own."""
