"""A webhook: a process of the library's own that posts the notices it gets to one URL, those of each process in order.

Each webhook is a process of the kind ``perdure/webhook``, one for each URL, which any worker serves. It awaits notices
as any other receiver does; a delivery is a step, whose retries and errors are seen where those of other steps are.
"""

from __future__ import annotations

import asyncio
import hmac
import os
from hashlib import blake2b
from typing import Any
from urllib.parse import SplitResult, quote, urlsplit

from msgspec import json

from perdure import limits
from perdure.authoring.step import step
from perdure.authoring.workflow import receive, set_state, workflow
from perdure.errors import InvalidInput, PayloadError, PerdureError, Permanent, StepError
from perdure.kernel.names import LIBRARY
from perdure.kernel.notice import SIGNAL, Notice
from perdure.kernel.retry import Retry
from perdure.turns.renewal import continue_as_new

KIND = f"{LIBRARY}webhook"
SECRET = "PERDURE_WEBHOOK_SECRET"
"""The environment variable of a worker with the secret by which its requests are signed."""

_TRY_AGAIN = frozenset({408, 425, 429})
"""Refusals that may go away; of the others, only a server's own errors (5xx) may."""


_IN_HEADERS = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")


class Undelivered(PerdureError):
    """The receiver could not take a notice now; it is sent again."""


def checked(url: Any) -> str:
    """``url`` if notices can be posted to it; raises InvalidInput, which does not show it: it may hold a secret."""
    if not isinstance(url, str) or not url.isascii() or not url.isprintable() or " " in url:
        raise InvalidInput("the URL of a webhook must be ASCII without spaces. Percent-encode what else it holds.")
    if len(url) > limits.WEBHOOK_URL_BYTES:
        raise InvalidInput(f"the URL of a webhook has {len(url)} bytes; {limits.WEBHOOK_URL_BYTES} are allowed.")
    try:
        parts = urlsplit(url)
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        right = False
    if not right:
        raise InvalidInput("what was given is no URL of a webhook. Give an http:// or https:// URL with a host.")
    if parts.username is not None or parts.fragment:
        raise InvalidInput("the URL of a webhook has a user name or a fragment. Put a token into its path or query.")
    return url


def key_of(url: str) -> str:
    """The key of the webhook's process: the host, which people look for, and a digest, which shows no secret."""
    return f"{urlsplit(url).hostname}/{blake2b(url.encode(), digest_size=16).hexdigest()}"


@workflow(name=KIND)
async def webhook(url: str, delivered: int = 0, given_up: int = 0) -> None:
    """Post each notice that comes to ``url``, and continue as new after some hundreds; the numbers count deliveries."""
    counts = {"delivered": delivered, "given_up": given_up}
    under_way: set[asyncio.Task[None]] = set()
    last: dict[str, asyncio.Task[None]] = {}
    for _ in range(limits.WEBHOOK_NOTICE_RECORDS):
        try:
            notice = await receive(SIGNAL, Notice)
        except PayloadError:  # a person has sent it: it is no notice
            continue
        delivery = asyncio.create_task(_deliver(url, notice, last.get(notice.process), counts))
        last[notice.process] = delivery
        under_way.add(delivery)
        while len(under_way) >= limits.WEBHOOK_DELIVERY_RECORDS:  # the others wait in the inbox
            _, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
    if under_way:
        await asyncio.wait(under_way)
    continue_as_new(url, counts["delivered"], counts["given_up"])


async def _deliver(url: str, notice: Notice, before: asyncio.Task[None] | None, counts: dict[str, int]) -> None:
    """Post one notice, once the one before it of the same process has been delivered or given up."""
    if before is not None:
        await asyncio.wait([before])
    try:
        await post(url, notice)
        counts["delivered"] += 1
    except StepError:  # its attempts and its error stand in the history, and the worker has logged it
        counts["given_up"] += 1
    set_state(dict(counts))


@step(
    name="perdure/post",
    retry=Retry(attempts=1_000_000, cap=limits.WEBHOOK_RETRY_SECONDS, total=limits.WEBHOOK_TRIED_SECONDS, budget=None),
    timeout=4 * limits.WEBHOOK_SILENT_SECONDS,
)
def post(url: str, notice: Notice) -> int:
    """Post a notice as JSON and return the status of the answer: 2xx. Raises Undelivered, OSError, Permanent.

    A redirect is not followed: it could lead anywhere.
    """
    status = request(url, json.encode(notice), notice.id)
    if 200 <= status < 300:
        return status
    answered = f"{urlsplit(url).hostname} answered a notice about process {notice.process} with status {status}"
    if status >= 500 or status in _TRY_AGAIN:
        raise Undelivered(answered)
    raise Permanent(f"{answered}: it will not take it, so it is not sent again")


def request(url: str, body: bytes, key: str) -> int:
    """POST a JSON text, signed if this worker has a secret, and return the status; raises Undelivered, OSError.

    ``key`` is its Idempotency-Key, percent-encoded where a header cannot hold it: the same if the text is sent again.
    """
    headers = {"Content-Type": "application/json", "User-Agent": "perdure", "Idempotency-Key": header_text(key)}
    secret = os.environ.get(SECRET)
    if secret:
        headers["Perdure-Signature"] = f"sha256={hmac.new(secret.encode(), body, 'sha256').hexdigest()}"
    return _request(urlsplit(url), body, headers)


def header_text(text: str) -> str:
    """The text as a header can hold it: printable ASCII stays; all else, and ``%``, is percent-encoded as UTF-8."""
    return quote(text, safe=_IN_HEADERS, errors="surrogatepass")


def _request(parts: SplitResult, body: bytes, headers: dict[str, str]) -> int:
    from http import client  # it takes 20 ms to import, which a program that posts nothing need not pay

    kind = client.HTTPSConnection if parts.scheme == "https" else client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=limits.WEBHOOK_SILENT_SECONDS)
    try:
        connection.request("POST", (parts.path or "/") + (f"?{parts.query}" if parts.query else ""), body, headers)
        return connection.getresponse().status
    except client.HTTPException as error:
        raise Undelivered(f"{parts.hostname} gave no proper answer: {type(error).__name__}") from None
    finally:
        connection.close()
