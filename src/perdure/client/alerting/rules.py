"""Rules that alert as people add, list, silence, try and remove them."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from perdure import limits
from perdure.client import validation
from perdure.client.alerting import conditions
from perdure.client.alerting.conditions import AlertQuestion
from perdure.client.alerting.destination import delivered, shown_destination
from perdure.client.alerting.evaluation import AlertEvaluation
from perdure.client.alerting.rule import AlertRule
from perdure.client.alerting.silence import checked_hours
from perdure.client.finding.grammar import parsed
from perdure.client.finding.saved import expanded
from perdure.client.view import instant
from perdure.clock import SECOND, Computer, Duration
from perdure.errors import IllegalMove, InvalidInput
from perdure.kernel.alerting import AlertMessage, AlertPlan, AlertState, AlertSubject, KeptAlertRule, rule_of
from perdure.kernel.names import check_name, near
from perdure.kernel.note import ALERT_RULE, Note
from perdure.kernel.plain import shown
from perdure.kernel.transition import Sender
from perdure.logs import logger
from perdure.store.base import Store

PROGRAM = "program"
"""Where a rule comes from that a program was given."""
log = logger("alert")
RuleChange = Callable[[KeptAlertRule, int], KeptAlertRule]
RuleCheck = Callable[[KeptAlertRule], bool]
"""Makes a rule's new content from the old one, at the store's time."""


@dataclass(frozen=True, slots=True)
class ActiveAlert:
    """One subject of which a rule's condition holds: since when, in words, and when people were told; None: not yet."""

    subject: str
    count: int
    text: str
    since: datetime
    told_at: datetime | None


@dataclass(frozen=True, slots=True)
class AlertRuleView:
    """A rule as it stands. Durations are seconds, times datetimes in UTC; places are shown without what may be secret.

    ``active`` is of what its condition holds. A worker has last looked at ``looked_at``. It sends nothing before
    ``silenced_until``, nor in the hours of ``quiet`` and ``silenced_daily``. ``waiting`` messages could not be sent
    yet; ``error`` is why the last look or message has failed. ``who``, ``why`` and ``origin`` (``program`` if a program
    was given the rule) describe the last change, made at ``changed_at``.
    """

    name: str
    when: str
    to: builtins.list[str]
    where: str
    at_least: int
    within: float
    lasting: float
    every: float
    per_hour: int
    resolved: bool
    quiet: builtins.list[str]
    active: builtins.list[ActiveAlert]
    looked_at: datetime | None
    silenced_until: datetime | None
    silenced_daily: builtins.list[str]
    waiting: int
    error: str
    changed_at: datetime
    who: str
    why: str
    origin: str


@dataclass(frozen=True, slots=True)
class AlertTrial:
    """What a trial of a rule has found: ``holds`` says of what its condition holds now.

    ``sent`` are the places, each with why it did not take the message of the trial; empty if it did.
    """

    name: str
    holds: builtins.list[str]
    sent: builtins.list[tuple[str, str]]

    @property
    def works(self) -> bool:
        """Whether every place has taken the message."""
        return not any(error for _, error in self.sent)


class AlertRules:
    """The verbs on rules that alert: ``engine.alerts``. They stand in the database; workers evaluate them."""

    def __init__(self, store: Store, machine: Computer) -> None:
        self._store = store
        self._evaluation = AlertEvaluation(store, machine)

    async def add(self, rule: AlertRule, *, who: str = "", why: str = "", origin: str = "client") -> AlertRuleView:
        """Add a rule, in place of one of that name; workers hear of it within ten seconds.

        A saved search that it names keeps what it means now. A rule that is put in place of another one begins anew,
        unless it says the same; it stays silenced. Raises InvalidInput.
        """
        sender, plan = validation.sender(who, why, origin), await self._whole(rule)
        known = await self._rules()
        if rule.name not in known and len(known) >= limits.ALERT_RULE_RECORDS:
            most = limits.ALERT_RULE_RECORDS
            raise InvalidInput(f"there are {most} alert rules, which is the limit: remove one first.")
        return await self._put(plan, sender)

    async def declare(self, rules: Iterable[AlertRule]) -> None:
        """Add the rules that a program was given, unless they stand as they are, or a person has added one so named."""
        for rule in rules:
            plan, known = await self._whole(rule), (await self._rules()).get(rule.name)
            if known is None or (known.origin == PROGRAM and known.plan != plan):
                await self._put(plan, validation.sender("", "", PROGRAM), _is_of_a_person)
            elif known.origin != PROGRAM and known.plan != plan:
                log.info("alert rule %s stays as %s has added it", rule.name, known.who or "somebody")

    async def list(self) -> builtins.list[AlertRuleView]:
        """Every rule, by name."""
        return [_view(kept) for _, kept in sorted((await self._rules()).items())]

    async def silence(
        self,
        name: str,
        *,
        until: datetime | None = None,
        last: Duration | None = None,
        daily: Sequence[str] | None = None,
        who: str = "",
        why: str = "",
        origin: str = "client",
    ) -> AlertRuleView:
        """Send nothing of a rule ``until`` a time with a zone, or for as long as ``last``, or in hours of each day.

        ``daily`` are hours like ``"22:00-06:00 Europe/Zurich"``, in place of those that were given before; an empty
        list ends them. Without any of these three the rule is silent no more. What still is so when a silence ends is
        told then. Raises InvalidInput.
        """
        sender = validation.sender(who, why, origin)
        if until is not None and (last is not None or until.utcoffset() is None):
            raise InvalidInput("until= is a time with a zone, and last= a duration. Give one of them.")
        ends = None if until is None else round(until.timestamp() * SECOND)
        lasts = None if last is None else validation.duration(last, "last=")
        hours = None if daily is None else checked_hours([daily] if isinstance(daily, str) else daily)

        def silenced(kept: KeptAlertRule, now: int) -> KeptAlertRule:
            if ends is None and lasts is None and hours is None:
                kept = replace(kept, silenced_until=0, silenced_daily=())
            if ends is not None or lasts is not None:
                kept = replace(kept, silenced_until=now + lasts if lasts is not None else ends or 0)
            if hours is not None:
                kept = replace(kept, silenced_daily=hours)
            return replace(kept, state=replace(kept.state, look_at=0))  # what is silent no more is told soon

        return _view(await self._change(name, silenced, sender))

    async def test(self, name: str) -> AlertTrial:
        """Look of what the condition holds now, and send a message to each place; the rule itself knows nothing of it.

        Raises InvalidInput.
        """
        kept = _known(name, await self._rules())
        assert kept.plan is not None
        now = await self._store.now()
        question = AlertQuestion(self._store, kept.plan, 0, kept.added_at, now)
        holds = conditions.subjects((await conditions.look(question)).facts)
        text = f"this is a test; {len(holds):,} subjects would be told: {'; '.join(holds[:3])}" if holds else ""
        text = text or "this is a test; nothing would be told now"
        message = AlertMessage(f"{name}/test/{now}", name, kept.plan.when, "test", now, text)
        errors = await asyncio.gather(*(delivered(to, message) for to in kept.plan.to))
        return AlertTrial(name, holds, [*zip(map(shown_destination, kept.plan.to), errors, strict=True)])

    async def remove(self, name: str, *, who: str = "", why: str = "", origin: str = "client") -> None:
        """Remove a rule and what it knows; a program that is given it adds it again when it starts.

        Raises InvalidInput.
        """
        gone = await self._change(name, lambda kept, now: KeptAlertRule(), validation.sender(who, why, origin))
        assert gone.plan is None

    async def look(self) -> float:
        """Evaluate the rules that are due, as workers do by themselves; the answer is in how many seconds one is due.

        A program beside the workers that does so notices when no worker lives. Raises StoreError.
        """
        return await self._evaluation.look()

    async def _whole(self, rule: AlertRule) -> AlertPlan:
        """The rule as it is stored, with the meaning of the saved searches that it names."""
        if not isinstance(rule, AlertRule):
            raise InvalidInput(f"{shown(rule)} is no rule. Give an AlertRule.")
        where = (await expanded(self._store, rule.where)).strip()
        parsed(where)
        return replace(rule.plan(), where=where)

    async def _rules(self) -> dict[str, KeptAlertRule]:
        notes = await self._store.records(Note)
        found = {note.name.removeprefix(ALERT_RULE): rule_of(note) for note in notes}
        return {name: kept for name, kept in found.items() if kept is not None}

    async def _put(self, plan: AlertPlan, sender: Sender, unless: RuleCheck = lambda _: False) -> AlertRuleView:
        def put(kept: KeptAlertRule, now: int) -> KeptAlertRule:
            if kept.plan == plan:
                return kept
            return replace(kept, plan=plan, state=AlertState(), added_at=now)

        return _view(await self._change(plan.name, put, sender, new=True, unless=unless))

    async def _change(
        self, name: str, change: RuleChange, sender: Sender, *, new: bool = False, unless: RuleCheck = lambda _: False
    ) -> KeptAlertRule:
        """Read a rule, change it and write it; if it has changed meanwhile, try again. Raises IllegalMove.

        A rule of which ``unless`` holds at that moment stays as it is.
        """
        check_name(name, "the name of the rule")
        for _ in range(limits.COMMAND_TRIES):
            notes = {note.name: note for note in await self._store.records(Note)}
            note = notes.get(ALERT_RULE + name, Note(ALERT_RULE + name))
            known = {one.removeprefix(ALERT_RULE): kept for one in notes if (kept := rule_of(notes[one])) is not None}
            old = known.get(name, KeptAlertRule()) if new else _known(name, known)
            if unless(old):
                return old
            now = await self._store.now()
            said: dict[str, Any] = {"who": sender.who, "why": sender.why, "origin": sender.origin, "changed_at": now}
            after = replace(change(old, now), **said)
            written = note.next(after, now)
            if written in await self._store.records(Note, [written]):
                return after
        raise IllegalMove(f"alert rule {name} kept changing meanwhile; nothing was done, try again")


def _is_of_a_person(kept: KeptAlertRule) -> bool:
    return kept.plan is not None and kept.origin != PROGRAM


def _known(name: str, rules: dict[str, KeptAlertRule]) -> KeptAlertRule:
    if name not in rules:
        others = (
            f" There are {', '.join(sorted(rules))}." if rules else " There are none: `perdure alert add` adds one."
        )
        raise InvalidInput(f"there is no alert rule {shown(name)}.{near(str(name), rules)}{others}")
    return rules[name]


def _view(kept: KeptAlertRule) -> AlertRuleView:
    plan, state = kept.plan, kept.state
    assert plan is not None
    return AlertRuleView(
        name=plan.name,
        when=plan.when.value,
        to=[shown_destination(to) for to in plan.to],
        where=plan.where,
        at_least=plan.at_least,
        within=plan.within / SECOND,
        lasting=plan.lasting / SECOND,
        every=plan.every / SECOND,
        per_hour=plan.per_hour,
        resolved=plan.resolved,
        quiet=[*plan.quiet],
        active=[_active(name, one) for name, one in sorted(state.subjects.items()) if not one.over],
        looked_at=instant(state.looked_at or None),
        silenced_until=instant(kept.silenced_until or None),
        silenced_daily=[*kept.silenced_daily],
        waiting=len(state.outbox),
        error=next(filter(None, [state.error, *(one.error for one in state.outbox)]), ""),
        changed_at=instant(kept.changed_at),
        who=kept.who,
        why=kept.why,
        origin=kept.origin,
    )


def _active(name: str, one: AlertSubject) -> ActiveAlert:
    return ActiveAlert(name, one.fact.count, one.fact.text, instant(one.since), instant(one.told_at or None))
