"""The sending of what rules tell at one look: to all places at once, so that a silent one holds up no other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from perdure import limits
from perdure.client.alerting.destination import LOG, delivered, shown_destination
from perdure.kernel.alerting import AlertDelivery, AlertState
from perdure.logs import logger

OnTold = Callable[[str, Mapping[tuple[str, str], str]], Awaitable[AlertState]]
"""Crosses off what was sent by the rule of a note, and gives its lease back: for each delivery the error, or empty."""
log = logger("alert")


class AlertSending:
    """Sends the messages of rules while others are looked at; who leaves the block waits until all are answered.

    A look that is cancelled begins no more deliveries. Those under way get a moment to be answered, so that no other
    worker sends them again; a second cancellation ends that too.
    """

    def __init__(self, on_told: OnTold) -> None:
        self._on_told = on_told
        self._room = asyncio.Semaphore(limits.ALERT_DELIVERY_RECORDS)
        self._rules: list[asyncio.Task[AlertState]] = []
        self._stopping = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._rules:
            return
        if isinstance(error, asyncio.CancelledError):
            await self._cut_short()
            return
        try:
            await asyncio.wait(self._rules)
        except asyncio.CancelledError:
            await self._cut_short()
            raise

    def begin(self, note: str, rule: str, due: Sequence[AlertDelivery]) -> None:
        """Send what is due of the rule in this note."""
        sending = asyncio.create_task(self._send(note, rule, due), name="perdure alert")
        sending.add_done_callback(lambda sent: sent.cancelled() or sent.exception())  # it is raised by states
        self._rules.append(sending)

    def states(self) -> list[AlertState]:
        """How the rules stand once all is answered; raises StoreError if that could not be written."""
        return [rule.result() for rule in self._rules]

    async def _cut_short(self) -> None:
        self._stopping = True
        try:
            await asyncio.wait(self._rules, timeout=limits.ALERT_STOP_SECONDS)
        finally:
            for rule in self._rules:
                rule.cancel()
            await asyncio.wait(self._rules)

    async def _send(self, note: str, rule: str, due: Sequence[AlertDelivery]) -> AlertState:
        deliveries = {one.place: asyncio.create_task(self._deliver(rule, one)) for one in due}
        with suppress(asyncio.CancelledError):  # what was answered by then is crossed off all the same
            await asyncio.wait(deliveries.values())
        told = {place: one.result() for place, one in deliveries.items() if one.done() and not one.cancelled()}
        for one in deliveries.values():
            one.cancel()
        # If we die here what was sent is not crossed off: another worker sends it again, under the same id.
        return await self._on_told(note, {place: error for place, error in told.items() if error is not None})

    async def _deliver(self, rule: str, one: AlertDelivery) -> str | None:
        """Send one message; the answer is why it was not taken, empty if it was, None if it was not its turn.

        A delivery begins only while the lease of its rule is longer than it may take.
        """
        if one.to == LOG:
            return await self._delivered(rule, one)
        try:
            async with asyncio.timeout(limits.ALERT_BEGIN_SECONDS):
                await self._room.acquire()
        except TimeoutError:
            return None
        try:
            return None if self._stopping else await self._delivered(rule, one)
        finally:
            self._room.release()

    async def _delivered(self, rule: str, one: AlertDelivery) -> str:
        try:
            error = await delivered(one.to, one.message)
        except Exception as raised:
            log.exception("alert rule %s: this must not happen; please report it", rule)
            error = type(raised).__name__
        if error:
            log.warning("alert rule %s is not told to %s: %s", rule, shown_destination(one.to), error)
        return error
