"""A webhook: a process of the library's own that posts the notices it gets to one URL, those of each process in order.

Each webhook is a process of the kind ``perdure/webhook``, one for each URL, which any worker serves. It awaits notices
as any other receiver does; each request is a step, whose result or error is seen where those of other steps are.
"""

from __future__ import annotations

import asyncio
import hmac
import os
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any
from urllib.parse import SplitResult, quote, urlsplit

from msgspec import Struct, json

from perdure import limits
from perdure.authoring.step import step
from perdure.authoring.workflow import receive, set_state, workflow
from perdure.clock import SECOND, microseconds
from perdure.errors import InvalidInput, PayloadError, PerdureError, Permanent, StepError
from perdure.exhaustion import exhausted_in_step
from perdure.kernel.names import LIBRARY
from perdure.kernel.notice import SIGNAL, Notice
from perdure.kernel.retry import Retry
from perdure.turns.current import turn_for
from perdure.turns.mailbox import Borrowed
from perdure.turns.patches import patched
from perdure.turns.renewal import continue_as_new
from perdure.turns.verbs import random_source

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


class PostedBefore(Struct, frozen=True):
    """A notice that was not taken: its ``number`` in the inbox, how often it was posted, since when, and when again."""

    number: int
    times: int
    since: int
    due: int


@workflow(name=KIND)
async def webhook(url: str, delivered: int = 0, given_up: int = 0, untaken: tuple[PostedBefore, ...] = ()) -> None:
    """Post each notice that comes to ``url``, and continue as new after some hundred requests.

    The numbers count deliveries. Of ``untaken`` notices, which are in the inbox again, it is told what is known.
    """
    counts = {"delivered": delivered, "given_up": given_up}
    if patched(_APART):
        await _Deliveries(url, counts, untaken).run()
    else:
        await _in_one_window(url, counts)


_APART = f"{LIBRARY}apart"
"""The patch that a run takes unless an older Perdure has begun it: then it ends as that would have ended it."""


class _Deliveries:
    """What one run of a webhook has taken out of the inbox and not delivered.

    What was not taken waits for its time, and a later notice of the same process waits behind it: neither counts among
    the requests under way, so that all other processes are told meanwhile. What is left when the run ends goes back
    into the inbox, in its order; only how often it was posted is handed on.

    ``held`` notices of ``size`` bytes wait or are under way. ``fresh`` ones were not posted yet, and want to be now.
    ``left`` is how many requests the run may make, ``under_way`` how many have no answer.
    """

    def __init__(self, url: str, counts: dict[str, int], untaken: Sequence[PostedBefore]) -> None:
        self._loop = turn_for("a webhook")
        self._inbox = self._loop.mailbox(SIGNAL)
        self._url = url
        self._counts = counts
        self._untaken = {one.number: one for one in untaken}
        self._last: dict[str, asyncio.Task[None]] = {}
        self._window = asyncio.Semaphore(limits.WEBHOOK_DELIVERY_RECORDS)
        self._again = asyncio.Semaphore(limits.WEBHOOK_AGAIN_RECORDS)
        self._held = self._size = self._fresh = self._under_way = 0
        self._left = limits.WEBHOOK_NOTICE_RECORDS
        self._changed = asyncio.Event()
        self._over: asyncio.Future[None] = self._loop.create_future()

    async def run(self) -> None:
        """Deliver until the run has made its requests; then it continues as new."""
        if any(self._counts.values()):
            set_state(dict(self._counts))  # a new run begins without the state of the one before
        reader = asyncio.create_task(self._read())
        await asyncio.wait([reader, self._over], return_when=asyncio.FIRST_COMPLETED)
        if reader.done():
            reader.result()  # raises
        reader.cancel()
        await self._until(lambda: not self._under_way)  # a request has an answer soon, or ends by its timeout
        untaken = [tuple(self._untaken.values())] if self._untaken else []  # an older Perdure knows of none
        continue_as_new(self._url, *self._counts.values(), *untaken)

    async def _read(self) -> None:
        """Take one notice after the other out of the inbox, while there is room."""
        while True:
            await self._until(self._has_room)
            try:
                notice = await self._inbox.borrow(self._loop, Notice)
            except PayloadError:  # a person has sent this: it is no notice
                self._spend()
                continue
            process = notice.value.process
            self._last[process] = asyncio.create_task(self._deliver(notice, self._last.get(process)))
            await asyncio.sleep(0)  # it counts itself

    def _has_room(self) -> bool:
        return (
            self._fresh < limits.WEBHOOK_DELIVERY_RECORDS
            and self._held < limits.WEBHOOK_WAITING_RECORDS
            and self._size < limits.WEBHOOK_WAITING_BYTES
        )

    async def _deliver(self, notice: Borrowed[Notice], before: asyncio.Task[None] | None) -> None:
        """Post one notice until it is delivered or given up, once the one before it of the same process was."""
        self._held += 1
        self._size += notice.size
        if before is not None and not before.done():
            await asyncio.wait({before})
        if notice.number not in self._untaken:
            self._fresh += 1
            async with self._window:
                await self._post(notice)
            self._fresh -= 1
        while (known := self._untaken.get(notice.number)) is not None:
            self._changed.set()
            await asyncio.sleep((known.due - self._loop.now) / SECOND)
            async with self._again, self._window:
                await self._post(notice)
        self._inbox.settle(notice.number)
        self._held -= 1
        self._size -= notice.size
        self._changed.set()
        set_state(dict(self._counts))

    async def _post(self, notice: Borrowed[Notice]) -> None:
        """Make one request; if the notice is not taken, note when it is posted again, or give it up."""
        if not self._left:
            await self._loop.create_future()  # the next run makes this request
        self._spend()
        number, now = notice.number, self._loop.now
        known = self._untaken.pop(number, PostedBefore(number, 0, now, now))
        delay = _UNTIL_TAKEN.next_delay(known.times + 1, (now - known.since) / SECOND, random_source().random())
        taken = False
        self._under_way += 1
        try:
            taken = isinstance(await _once(self._url, notice.value, delay is not None), int)
        except StepError as error:  # it stands in the history, and the worker has logged it
            delay = None if error.type == Permanent.__name__ else delay
        except PayloadError:  # with the URL it is larger than the arguments of a step may be
            delay = None
        finally:
            self._under_way -= 1
            self._changed.set()
        if taken or delay is None:
            self._counts["delivered" if taken else "given_up"] += 1
        else:
            due = self._loop.now + microseconds(delay)
            self._untaken[number] = PostedBefore(number, known.times + 1, known.since, due)

    def _spend(self) -> None:
        """Count a request of this run, or what was no notice: after so many its history is long enough."""
        self._left = max(self._left - 1, 0)
        if not self._left and not self._over.done():
            self._over.set_result(None)

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._changed.clear()
            await self._changed.wait()


async def _in_one_window(url: str, counts: dict[str, int]) -> None:
    """Go on with a run that an older Perdure has begun: what waits counts among the requests that are under way."""
    under_way: set[asyncio.Task[None]] = set()
    last: dict[str, asyncio.Task[None]] = {}
    for _ in range(limits.WEBHOOK_NOTICE_RECORDS):
        try:
            notice = await receive(SIGNAL, Notice)
        except PayloadError:
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
    """Post one notice in a run of an older Perdure; the step has all its attempts."""
    if before is not None:
        await asyncio.wait([before])
    try:
        await post(url, notice)
        counts["delivered"] += 1
    except StepError:
        counts["given_up"] += 1
    set_state(dict(counts))


_UNTIL_TAKEN = Retry(
    attempts=1_000_000, cap=limits.WEBHOOK_RETRY_SECONDS, total=limits.WEBHOOK_TRIED_SECONDS, budget=None
)
"""When a notice is posted again that was not taken."""


@step(name="perdure/post", retry=_UNTIL_TAKEN, timeout=4 * limits.WEBHOOK_SILENT_SECONDS)
def post(url: str, notice: Notice, again: bool = False) -> int | str:
    """Post a notice as JSON and return the status of the answer, 2xx; raises Undelivered, OSError, Permanent.

    With ``again`` it may be posted again later: then it returns in words why it was not taken, for the history, and
    raises Permanent alone, or what the worker is short of. A redirect is not followed: it could lead anywhere.
    """
    try:
        status = request(url, json.encode(notice), notice.id)
    except (Undelivered, OSError) as error:
        if again and exhausted_in_step(error) is None:  # else the worker makes this attempt once more
            return f"{urlsplit(url).hostname} could not be told: {type(error).__name__}: {error}"
        raise
    if 200 <= status < 300:
        return status
    answered = f"{urlsplit(url).hostname} answered a notice about process {notice.process} with status {status}"
    if status < 500 and status not in _TRY_AGAIN:
        raise Permanent(f"{answered}: it will not take it, so it is not sent again")
    if again:
        return answered
    raise Undelivered(answered)


_once = post.options(retry=Retry.NONE)
"""One request: the code of the webhook itself waits before the next one."""


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
