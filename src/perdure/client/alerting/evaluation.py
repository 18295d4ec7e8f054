"""The evaluation of rules that alert: one worker at a time looks whether a rule's condition holds, and tells people."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress

from msgspec.structs import replace

from perdure import limits
from perdure.client.alerting import conditions
from perdure.client.alerting.conditions import AlertQuestion
from perdure.client.alerting.destination import shown_destination
from perdure.client.alerting.sending import AlertSending
from perdure.client.alerting.silence import silent_at
from perdure.clock import SECOND, Computer, microseconds
from perdure.errors import PerdureError, StoreUnavailable
from perdure.kernel.alerting import AlertDelivery, AlertPlan, AlertState, KeptAlertRule, given_up, rule_of
from perdure.kernel.note import ALERT_RULE, Note
from perdure.logs import logger
from perdure.store.base import Store

log = logger("alert")


class AlertEvaluation:
    """Evaluates the rules of a database. However many do so at once, each message is sent by one of them."""

    def __init__(self, store: Store, machine: Computer) -> None:
        self._store = store
        self._machine = machine
        self._id = machine.new_id().hex()
        self._one_at_a_time = asyncio.Lock()  # a lease keeps off others, and not a second look from here

    async def look(self) -> float:
        """Look at every rule that is due, and send what is to be sent; the answer is in how many seconds one is due."""
        async with self._one_at_a_time:
            return await self._look()

    async def _look(self) -> float:
        waits = [limits.ALERT_LOOK_SECONDS]
        async with AlertSending(self._told) as sending:
            for note in await self._store.records(Note):
                if (kept := rule_of(note)) is not None:
                    now = await self._store.now()
                    leased = kept.state.leased(self._id, now)
                    after: AlertState | None = kept.state
                    if leased is not None:
                        after = await self._look_at(note, replace(kept, state=leased), now, sending)
                    waits += [] if after is None else [(after.due_at - now) / SECOND]
        states = sending.states()
        now = await self._store.now() if states else 0
        waits += [(state.due_at - now) / SECOND for state in states]
        return max(1.0, min(waits))

    async def _look_at(self, note: Note, kept: KeptAlertRule, now: int, sending: AlertSending) -> AlertState | None:
        """Look at one rule, unless another worker is quicker; the answer is how it stands then, as far as is known.

        None: messages of it are being sent, and it stays leased until that is done.
        """
        try:
            return await self._look_leased(note, kept, now, sending)
        except asyncio.CancelledError:
            with suppress(PerdureError):
                await self._told(note.name, {})  # no other worker need wait for the end of the lease
            raise

    async def _look_leased(self, note: Note, kept: KeptAlertRule, now: int, sending: AlertSending) -> AlertState | None:
        assert kept.plan is not None
        note = note.next(kept, now)
        if note not in await self._store.records(Note, [note]):
            return kept.state
        state, now = await self._looked(kept.plan, kept, now)
        due = [one for one in state.outbox if one.next_at <= now]
        state = (due and state.leased(self._id, now)) or state.released()
        note = note.next(replace(kept, state=state), now)
        if note not in await self._store.records(Note, [note]):
            return kept.state  # a person has changed the rule meanwhile, or another worker is at it: it is looked again
        _log_given_up(kept.plan.name, given_up(kept.state, state))
        if not due:
            return state
        sending.begin(note.name, kept.plan.name, due)
        return None

    async def _looked(self, plan: AlertPlan, kept: KeptAlertRule, now: int) -> tuple[AlertState, int]:
        """The state after a look at the condition, if it is time for one; and the time then."""
        if now < kept.state.look_at:
            return kept.state, now
        began = self._machine.monotonic()
        question = AlertQuestion(self._store, plan, kept.state.upto, kept.added_at, now)
        try:
            found = await conditions.look(question)
            silenced = now < kept.silenced_until or silent_at((*plan.quiet, *kept.silenced_daily), now)
            state = kept.state.found(plan, found, now, silenced=silenced)
        except StoreUnavailable:
            raise
        except Exception as error:  # such as a damaged row: it keeps no other rule waiting
            said = str(error) if isinstance(error, PerdureError) else type(error).__name__
            if said != kept.state.error:
                log.warning("the condition of alert rule %s cannot be looked at: %s", plan.name, said)
            state = replace(kept.state, error=said)
        took = limits.ALERT_PAUSE_SECONDS * (self._machine.monotonic() - began)
        pause = microseconds(min(took, limits.ALERT_LONGEST_PAUSE_SECONDS))
        now = await self._store.now()
        return replace(state, look_at=now + max(plan.every, pause)), now

    async def _told(self, name: str, told: Mapping[tuple[str, str], str]) -> AlertState:
        """Cross off what was sent, also if a person has changed the rule meanwhile, and give its lease back."""
        state = AlertState()
        for _ in range(limits.COMMAND_TRIES):
            note = next(one for one in await self._store.records(Note) if one.name == name)
            now, kept = await self._store.now(), note.read(KeptAlertRule)
            state = kept.state.answered(told, now)
            state = state.released() if state.by == self._id else state
            after = note.next(replace(kept, state=state), now)
            if state == kept.state:
                break
            if after in await self._store.records(Note, [after]):
                taken = [place for place, error in told.items() if not error]
                _log_given_up(name.removeprefix(ALERT_RULE), given_up(kept.state, state, taken))
                break
        return state


def _log_given_up(rule: str, deliveries: Sequence[AlertDelivery]) -> None:
    """Log what people are never told by a rule."""
    for one in deliveries:
        text = "message %s of alert rule %s is given up for %s; see the errors above, and `perdure alert test %s`"
        log.error(text, one.message.id, rule, shown_destination(one.to), rule)
