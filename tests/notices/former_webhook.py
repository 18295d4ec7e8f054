"""The webhook as it was before it told other processes while notices are not taken: what an older Perdure records."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import json

from perdure import Retry, Workflow, continue_as_new, limits, receive, set_state, step, workflow
from perdure.authoring.webhook import KIND, Undelivered, request
from perdure.authoring.workflow import DEFINED
from perdure.errors import PayloadError, Permanent, StepError
from perdure.kernel.notice import SIGNAL, Notice


def former() -> Workflow[Any, Any]:
    """The workflow; no other engine of this program hosts it."""
    known = DEFINED.get((KIND, ""))
    made = workflow(name=KIND)(webhook)
    del DEFINED[KIND, ""]
    if known is not None:
        DEFINED[KIND, ""] = known
    return made


async def webhook(url: str, delivered: int = 0, given_up: int = 0) -> None:
    counts = {"delivered": delivered, "given_up": given_up}
    under_way: set[asyncio.Task[None]] = set()
    last: dict[str, asyncio.Task[None]] = {}
    for _ in range(limits.WEBHOOK_NOTICE_RECORDS):
        try:
            notice = await receive(SIGNAL, Notice)
        except PayloadError:
            continue
        delivery = asyncio.create_task(deliver(url, notice, last.get(notice.process), counts))
        last[notice.process] = delivery
        under_way.add(delivery)
        while len(under_way) >= limits.WEBHOOK_DELIVERY_RECORDS:
            _, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
    if under_way:
        await asyncio.wait(under_way)
    continue_as_new(url, counts["delivered"], counts["given_up"])


async def deliver(url: str, notice: Notice, before: asyncio.Task[None] | None, counts: dict[str, int]) -> None:
    if before is not None:
        await asyncio.wait([before])
    try:
        await post(url, notice)
        counts["delivered"] += 1
    except StepError:
        counts["given_up"] += 1
    set_state(dict(counts))


@step(name="perdure/post", retry=Retry(attempts=1_000_000, budget=None), timeout=60)
def post(url: str, notice: Notice) -> int:
    status = request(url, json.encode(notice), notice.id)
    if 200 <= status < 300:
        return status
    if status >= 500:
        raise Undelivered(f"{status}")
    raise Permanent(f"{status}")
