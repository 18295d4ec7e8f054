"""Rules that alert: what is new since people were told last, what one message says of it, and who sends it.

All workers share the state of a rule, a note: each change is written over the version that was read. What is to be sent
is written before it is sent, and crossed off afterwards: a message may come twice, under one id, and is never lost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from perdure import limits
from perdure.clock import SECOND, microseconds
from perdure.kernel.note import ALERT_RULE, Note

SUBJECTS = 100
"""So many subjects of a rule are known at once; of more, those that concern few processes wait.

Of what happens once between two looks, they are left out.
"""
SHOWN = 10
SAMPLES = 5
WAITING = 20
"""So many messages of a rule wait for places that cannot take them, however many these are; the oldest are given up."""
HOUR = 3600 * SECOND


class AlertCondition(StrEnum):
    """What a rule alerts of."""

    BROKEN = "broken"  # processes of a kind are broken and wait for a person
    OVERDUE = "overdue"  # processes of a kind are due, and nobody has looked at them for a while
    UNPOLLED = "unpolled"  # steps wait in a queue that no live worker serves
    FAILURES = "failures"  # processes have failed with one fingerprint, so many within so long
    OPERATION_FINISHED = "operation-finished"  # an operation has ended
    OPERATION_RELAPSED = "operation-relapsed"  # processes that an operation has commanded are back where they were
    SWEEP_SILENT = "sweep-silent"  # a sweep that finds what is stuck does not pass, or none does
    OUTAGE = "outage"  # a kind is held, as many of its processes fail alike
    BREAKER_OPEN = "breaker-open"  # a circuit breaker is open or half-open


class AlertPlan(Struct, frozen=True, omit_defaults=True):
    """What a rule says, as it is stored; ``within``, ``lasting`` and ``every`` are microseconds: see ``AlertRule``."""

    name: str
    when: AlertCondition
    to: tuple[str, ...]
    where: str = ""
    at_least: int = 1
    within: int = 0
    lasting: int = 0
    every: int = 0
    per_hour: int = 0
    resolved: bool = False
    quiet: tuple[str, ...] = ()


class AlertFact(Struct, frozen=True, omit_defaults=True):
    """One subject of which a condition is true: how many processes it concerns, in a sentence, and some of them.

    ``fresh`` of them have come since the last look. What happens ``once`` is no state that ends.
    """

    subject: str
    count: int
    text: str
    fresh: int = 0
    sample: tuple[str, ...] = ()
    once: bool = False


class AlertLook(Struct, frozen=True):
    """What a look at a condition has found. What came up to the time ``upto`` is known by then.

    A subject is told of once it has been there for ``lasting``.
    """

    facts: Sequence[AlertFact]
    upto: int
    lasting: int = 0


class AlertSubject(Struct, frozen=True, omit_defaults=True):
    """What a rule knows of one subject: since when it is there, when people were told, and what came since ``untold``.

    It is ``over`` while people are still to be told that.
    """

    fact: AlertFact
    since: int
    told_at: int = 0
    untold: int = 0
    over: bool = False

    def seen(self, fact: AlertFact) -> AlertSubject:
        """It is there again, or still. Of what came since the last message, some may be gone again by now."""
        untold = min(self.untold + fact.fresh, fact.count) if self.told_at else 0
        return replace(self, fact=fact, over=False, untold=untold)

    def gone(self, *, resolved: bool) -> AlertSubject | None:
        """It is not there any more: None if nobody is to hear of it again."""
        if self.fact.once:
            return None if self.told_at else self
        return replace(self, over=True) if self.told_at and resolved else None

    def news(self, lasting: int, now: int) -> bool:
        """Whether people are to be told that it is there."""
        if self.over:
            return False
        return self.untold > 0 if self.told_at else now - self.since >= lasting


class AlertMessage(Struct, frozen=True, omit_defaults=True):
    """One message of a rule: what is new and what is ``over``, in a sentence; ``id`` is the same if it comes again.

    ``status`` is *firing*, *resolved* if nothing is new in it, or *test*. ``count`` is how many processes the new
    subjects concern, ``more`` how many subjects are in the sentence as a number only.
    """

    id: str
    rule: str
    when: str
    status: str
    at: int
    text: str
    count: int = 0
    facts: tuple[AlertFact, ...] = ()
    over: tuple[str, ...] = ()
    more: int = 0


class AlertDelivery(Struct, frozen=True, omit_defaults=True):
    """A message that is to be sent to one place: since when, how often that was tried, and when it is tried next."""

    to: str
    message: AlertMessage
    since: int
    next_at: int
    tries: int = 0
    error: str = ""

    @property
    def place(self) -> tuple[str, str]:
        """What tells it from all others."""
        return self.message.id, self.to

    def failed(self, error: str, now: int) -> AlertDelivery | None:
        """It could not be sent; None if it is given up."""
        if now - self.since > microseconds(limits.ALERT_TRIED_SECONDS):
            return None
        wait = min(limits.ALERT_RETRY_SECONDS * 2 ** min(self.tries, 20), limits.ALERT_RETRY_CAP_SECONDS)
        return replace(self, tries=self.tries + 1, next_at=now + microseconds(wait), error=error)


class AlertState(Struct, frozen=True, omit_defaults=True):
    """How a rule stands. It is looked at next at ``look_at``, and the worker ``by`` does so until ``leased_until``.

    ``sent`` are the times of the messages of the last hour, ``outbox`` what is still to be sent. ``error`` is why the
    last look has failed.
    """

    subjects: dict[str, AlertSubject] = {}
    upto: int = 0
    sent: tuple[int, ...] = ()
    outbox: tuple[AlertDelivery, ...] = ()
    look_at: int = 0
    looked_at: int = 0
    by: str = ""
    leased_until: int = 0
    lapses: int = 0
    error: str = ""

    @property
    def due_at(self) -> int:
        """When a worker has something to do for the rule."""
        return min([self.look_at, *(delivery.next_at for delivery in self.outbox)])

    def leased(self, by: str, now: int) -> AlertState | None:
        """As it is while this worker is at it; None if there is nothing to do, or another one is at it.

        A lease that has lapsed makes the next one longer: perhaps the look takes so long.
        """
        others = self.by not in ("", by)
        if now < self.due_at or (others and now < self.leased_until):
            return None
        lapses = self.lapses + others
        seconds = min(limits.ALERT_LEASE_SECONDS * 2 ** min(lapses, 20), limits.ALERT_LONGEST_LEASE_SECONDS)
        return replace(self, by=by, leased_until=now + microseconds(seconds), lapses=lapses)

    def released(self) -> AlertState:
        """As it is once the worker is through with it."""
        return replace(self, by="", leased_until=0, lapses=0)

    def found(self, plan: AlertPlan, look: AlertLook, now: int, *, silenced: bool) -> AlertState:
        """The state after a look; if there is something to tell, and it may be told, the message is in the outbox."""
        seen = {fact.subject: fact for fact in self._chosen(look.facts)}
        gone = {name: one.gone(resolved=plan.resolved) for name, one in self.subjects.items() if name not in seen}
        left = [(name, one) for name, one in gone.items() if one is not None][:SUBJECTS]
        subjects = {**{name: self._seen(fact, now) for name, fact in seen.items()}, **dict(left)}
        after = replace(self, subjects=subjects, upto=max(self.upto, look.upto), looked_at=now, error="")
        after = replace(after, sent=tuple(at for at in self.sent if now - at < HOUR))
        if silenced or len(after.sent) >= plan.per_hour:
            return after
        return after._told(plan, look.lasting, now)

    def _chosen(self, facts: Iterable[AlertFact]) -> list[AlertFact]:
        return sorted(facts, key=lambda one: (one.subject not in self.subjects, -one.count, one.subject))[:SUBJECTS]

    def _seen(self, fact: AlertFact, now: int) -> AlertSubject:
        known = self.subjects.get(fact.subject)
        return AlertSubject(fact, now) if known is None else known.seen(fact)

    def _told(self, plan: AlertPlan, lasting: int, now: int) -> AlertState:
        """People are told what they do not know yet, in one message."""
        news = {name: one for name, one in self.subjects.items() if one.news(lasting, now)}
        over = [name for name, one in self.subjects.items() if one.over]
        if not (news or over):
            return self
        message = message_of(plan, list(news.values()), over, now)
        told = {name: replace(one, told_at=now, untold=0) for name, one in news.items()}
        left = {name: told.get(name, one) for name, one in self.subjects.items() if name not in over}
        outbox = (*self.outbox, *(AlertDelivery(to, message, now, now) for to in plan.to))
        waiting = list(dict.fromkeys(delivery.message.id for delivery in outbox))[-WAITING:]
        outbox = tuple(delivery for delivery in outbox if delivery.message.id in waiting)
        return replace(self, subjects=left, sent=(*self.sent, now), outbox=outbox)

    def answered(self, errors: Mapping[tuple[str, str], str], now: int) -> AlertState:
        """The state after deliveries: for each the error, or an empty text if the message was taken."""
        outbox = []
        for delivery in self.outbox:
            error = errors.get(delivery.place)
            kept = delivery if error is None else delivery.failed(error, now) if error else None
            outbox += [] if kept is None else [kept]
        return replace(self, outbox=tuple(outbox))


def given_up(before: AlertState, after: AlertState, taken: Collection[tuple[str, str]] = ()) -> list[AlertDelivery]:
    """The deliveries that wait no more though they were not ``taken``: the oldest of too many, or a day old."""
    waiting = {delivery.place for delivery in after.outbox}.union(taken)
    return [delivery for delivery in before.outbox if delivery.place not in waiting]


class KeptAlertRule(Struct, frozen=True, omit_defaults=True):
    """The content of the note of a rule: its ``plan``, None once it was removed, its state, and who silenced it.

    It sends nothing before ``silenced_until``, nor in the hours of ``silenced_daily``. The last change was made by
    ``who`` at ``changed_at``; the rule counts what happens after ``added_at``.
    """

    plan: AlertPlan | None = None
    state: AlertState = AlertState()
    silenced_until: int = 0
    silenced_daily: tuple[str, ...] = ()
    added_at: int = 0
    changed_at: int = 0
    who: str = ""
    why: str = ""
    origin: str = ""


def message_of(plan: AlertPlan, news: Sequence[AlertSubject], over: Sequence[str], now: int) -> AlertMessage:
    """The message of all that is new and all that is over."""
    parts = [_sentence(one) for one in news[:SHOWN]]
    more = max(len(news) - SHOWN, 0)
    parts += [f"and {more:,} more"] if more else []
    if over:
        told = ", ".join(over[:SHOWN]) + (f" and {len(over) - SHOWN:,} more" if len(over) > SHOWN else "")
        parts.append(f"no longer: {told}")
    return AlertMessage(
        f"{plan.name}/{now}", plan.name, plan.when, "firing" if news else "resolved", now, "; ".join(parts),
        sum(one.fact.count for one in news), tuple(one.fact for one in news[:SHOWN]), tuple(over[:SHOWN]), more,
    )  # fmt: skip


def _sentence(one: AlertSubject) -> str:
    fresh = f", {one.untold:,} of them since the last message" if one.told_at else ""
    sample = f" ({', '.join(one.fact.sample)}{', …' if one.fact.count > len(one.fact.sample) else ''})"
    return f"{one.fact.text}{fresh}{sample if one.fact.sample else ''}"


def rule_of(note: Note) -> KeptAlertRule | None:
    """The rule that a note holds; None if it holds none, or one that was removed."""
    kept = note.read(KeptAlertRule) if note.name.startswith(ALERT_RULE) else None
    return None if kept is None or kept.plan is None else kept
