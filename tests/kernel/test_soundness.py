"""Soundness: a record made by the kernel's own transitions breaks no law; a planted fault breaks its law."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from perdure.clock import SECOND
from perdure.kernel import command, manual_result, run, soundness, transition
from perdure.kernel.commit import STILL_BUSY, Commit, Outcome
from perdure.kernel.event import Event, EventType
from perdure.kernel.failure import Failure
from perdure.kernel.message import Message, MessageType
from perdure.kernel.process import Process, Status
from perdure.kernel.soundness import LAWS, Folded, fold, unsound
from perdure.limits import ALONE_DEATHS

ID = b"p" * 16
WORKER = b"w" * 16
SENDER = transition.Sender("ada", "because", "test")


class Life:
    """One process, kept as a store keeps it, by nothing but the kernel's own commits."""

    def __init__(self) -> None:
        self.now = 1_000 * SECOND
        self.process = Process(ID, "order", "A-17", b"[]", due_at=self.now, created_at=self.now, changed_at=self.now)
        self.events: list[Event] = []
        self.messages: list[Message] = []
        self.turns = 0
        self.steps = 0
        self.runs = 0

    @property
    def unsound(self) -> list[str]:
        findings = unsound(self.process, self.events, self.messages, self.now)
        return [f"{finding.law}: {finding.text}" for finding in findings]

    def apply(self, commit: Commit) -> None:
        before, after = self.process, commit.after
        assert (commit.token, commit.version) == (before.token, before.version)
        due_at = self.now + commit.lease if commit.lease else after.due_at
        reminder = after.reminder
        if after.status is Status.RUNNING and after.owner is None and before.inbox > after.seen:
            due_at, reminder = self.now, False
        if after.run != before.run:
            self.events = []
        self.process = replace(after, inbox=before.inbox, due_at=due_at, reminder=reminder, changed_at=self.now)
        self.events += [replace(event, token=after.token, version=after.version) for event in commit.events]
        if commit.offered is not None:
            self.messages = [
                replace(m, consumed_run=None, consumed_by=None) if m.number >= commit.offered else m
                for m in self.messages
            ]
        for number, event in commit.consumed:
            one = self.messages[number - 1]
            self.messages[number - 1] = replace(one, consumed_run=after.run, consumed_by=event)

    # -- what can happen to it -------------------------------------------------------------------------------

    def send(self) -> None:
        number = self.process.inbox + 1
        self.messages.append(
            Message(bytes([number % 256] * 16), ID, MessageType.SIGNAL, "go", number=number, at=self.now)
        )
        wakes = self.process.status is Status.RUNNING and self.process.owner is None
        due = {"due_at": self.now, "reminder": False} if wakes else {}
        self.process = replace(self.process, inbox=number, changed_at=self.now, **due)

    def claim(self) -> None:
        process = self.process
        if process.status is not Status.RUNNING or process.due_at is None:
            return
        self.now = max(self.now, process.due_at)
        self.process = replace(
            process,
            token=process.token + 1,
            owner=WORKER,
            due_at=self.now + 15 * SECOND,
            reminder=False,
            opened_at=process.opened_at or self.now,
            changed_at=self.now,
        )

    def turn(self, outcome: Outcome = STILL_BUSY) -> None:
        if self.process.owner is None:
            return
        self.turns = max([self.turns, *(event.turn for event in self.events)]) + 1
        self.steps += 1
        slot: dict[str, Any] = {"turn": self.turns, "at": self.now, "place": str(self.steps)}
        new: list[Event] = [
            Event(0, type=EventType.TIMER_FIRED, name="timer", **slot),
            Event(0, type=EventType.STEP_COMPLETED if self.steps % 3 else EventType.STEP_FAILED, name="pay", **slot),
            Event(0, 0, EventType.ATTEMPT_FAILED, self.now, str(self.steps), "ship"),
        ]
        unheard = range(self.process.seen + 1, self.process.inbox + 1)
        new += [Event(0, self.turns, EventType.MESSAGE_RECEIVED, self.now, message=number) for number in unheard]
        new = [replace(event, number=number) for number, event in enumerate(new, self.process.events + 1)]
        consumed = tuple((event.message, event.number) for event in new if event.message is not None)
        cleared = self.steps % 2 == 0
        self.apply(
            transition.turn(
                self.process, new, outcome, now=self.now, lease=15 * SECOND, idle_at=self.now + 99 * SECOND,
                consumed=consumed, cleared=cleared,
            )
        )  # fmt: skip

    def wait(self) -> None:
        self.turn(Outcome(wake_at=self.now + SECOND))

    def idle(self) -> None:
        self.turn(Outcome(awaiting="signal go"))

    def complete(self) -> None:
        self.turn(Outcome(Status.COMPLETED, result=b"1"))

    def fail(self) -> None:
        self.turn(Outcome(Status.FAILED, error=Failure("ValueError", "x").encode()))

    def stop(self) -> None:
        self.turn(Outcome(Status.CANCELLED))

    def die(self) -> None:
        if self.process.owner is not None:
            idle_at = self.now + SECOND
            self.apply(transition.orphaned(self.process, now=self.now, died=True, worker="w", idle_at=idle_at))

    def release(self) -> None:
        if self.process.owner is not None:
            self.apply(transition.released(self.process, due_at=self.now))

    def break_down(self) -> None:
        if self.process.status in (Status.RUNNING, Status.BROKEN):
            failure = Failure("HistoryMisfit", "x")
            self.apply(transition.broken(self.process, failure, now=self.now, idle_at=self.now + SECOND))

    def expire(self) -> None:
        if not self.process.final:
            self.apply(transition.expired(self.process, now=self.now))

    def terminate(self) -> None:
        if not self.process.final:
            self.apply(transition.terminated(self.process, SENDER, now=self.now))

    def retry(self) -> None:
        if self.process.status in (Status.FAILED, Status.BROKEN):
            self.apply(run.retried(self.process, self.events, SENDER, now=self.now))

    def rest(self) -> None:
        self.now += SECOND


class Governed(Life):
    """A life in which people give orders too."""

    def hold(self) -> None:
        if self.process.status is Status.RUNNING:
            self.apply(command.held(self.process, SENDER, now=self.now, idle_at=self.now + SECOND))

    def resume(self) -> None:
        if self.process.status is Status.HELD:
            self.apply(command.resumed(self.process, SENDER, now=self.now))

    def restart(self) -> None:
        self.apply(run.restarted(self.process, self.events, SENDER, now=self.now))

    def set_result(self) -> None:
        if self.process.status not in (Status.COMPLETED, Status.CANCELLED) and self.process.opened_at is not None:
            self.steps += 1
            step = f"by hand:{self.steps}"
            self.apply(manual_result.set_by_hand(self.process, self.events, step, b"1", SENDER, now=self.now))

    def restart_from(self) -> None:
        chosen = next((event for event in self.events if event.type is EventType.STEP_COMPLETED), None)
        if chosen is not None:
            self.apply(run.restarted_from(self.process, self.events, run.slot_text(chosen), SENDER, now=self.now))

    def bound(self) -> None:
        if not self.process.final:
            self.apply(command.bounded(self.process, SENDER, self.now + SECOND, now=self.now))


OPS: list[Callable[[Governed], None]] = [
    Life.send, Life.claim, Life.turn, Life.wait, Life.idle, Life.complete, Life.fail, Life.stop, Life.die, Life.release,
    Life.break_down, Life.expire, Life.terminate, Life.retry, Life.rest, Governed.hold, Governed.resume,
    Governed.restart, Governed.restart_from, Governed.set_result, Governed.bound,
]  # fmt: skip


@settings(max_examples=300)
@given(st.lists(st.sampled_from(OPS) | st.sampled_from([Life.claim, Life.turn, Life.die, Life.retry]), max_size=40))
def test_whatever_happens_to_a_process_no_law_is_broken(happenings: list[Callable[[Governed], None]]) -> None:
    life = Governed()
    for happens in happenings:
        happens(life)
        assert life.unsound == [], happens.__name__


def test_a_process_that_kills_its_workers_is_parked_and_its_history_says_so() -> None:
    life = Life()
    for _ in range(2 + ALONE_DEATHS):
        life.claim()
        life.die()
    assert life.process.status is Status.BROKEN
    assert fold(life.events).status is Status.BROKEN
    assert life.unsound == []


def test_a_failed_process_that_is_retried_is_offered_its_later_messages_again() -> None:
    life = Life()
    for happens in (Life.send, Life.claim, Life.turn, Life.turn, Life.send, Life.fail, Life.retry):
        happens(life)
    assert life.process.run == 2
    assert life.process.status is Status.RUNNING
    assert life.unsound == []


def test_a_history_folds_to_what_its_row_must_say() -> None:
    assert fold([]) == Folded(Status.RUNNING, 0, 0)
    history = [
        Event(1, 1, EventType.MESSAGE_RECEIVED, 5, message=1),
        Event(2, 0, EventType.BROKEN, 6, payload=b"{}"),
        Event(3, 0, EventType.RESUMED, 7, payload=b"{}"),
        Event(4, 2, EventType.MESSAGE_RECEIVED, 8, message=2),
        Event(5, 0, EventType.COMPLETED, 8),
    ]
    folds = [(fold(history[:n]).status, fold(history[:n]).seen) for n in range(1, 6)]
    assert folds == [
        (Status.RUNNING, 1),
        (Status.BROKEN, 1),
        (Status.RUNNING, 1),
        (Status.RUNNING, 2),
        (Status.COMPLETED, 2),
    ]


def test_evidence_that_cannot_be_read_breaks_no_check() -> None:
    for payload in (None, b"", b"nonsense", b"[]", b'{"alone_deaths":"x"}'):
        assert fold([Event(1, 0, EventType.REVIVED, 5, payload=payload)]).status is Status.RUNNING


# -- planted faults: each is found under the name of its law -------------------------------------------------


def busy() -> Life:
    life = Life()
    for happens in (Life.send, Life.claim, Life.turn, Life.turn):
        happens(life)
    return life


def ended(happens: Callable[[Life], None]) -> Life:
    life = busy()
    happens(life)
    return life


def row(life: Life, **changes: Any) -> Life:
    life.process = replace(life.process, **changes)
    return life


def event(life: Life, number: int, /, **changes: Any) -> Life:
    life.events[number - 1] = replace(life.events[number - 1], **changes)
    return life


def letter(life: Life, number: int, /, **changes: Any) -> Life:
    life.messages[number - 1] = replace(life.messages[number - 1], **changes)
    return life


def append(life: Life, type: EventType, **fields: Any) -> Life:
    last = life.events[-1]
    life.events.append(replace(last, number=last.number + 1, type=type, message=None, **fields))
    return row(life, events=len(life.events))


def without(life: Life, number: int) -> Life:
    del life.events[number - 1]
    return life


def unsent(life: Life) -> Life:
    del life.messages[0]
    return life


# In busy(): events 1 to 4 are the first turn (timer, step, failed attempt, message 1), 5 to 7 the second.
PLANTED: list[tuple[str, Callable[[], Life]]] = [
    ("unfinished_is_due", lambda: row(busy(), due_at=None)),
    ("unfinished_is_due", lambda: row(ended(Life.complete), due_at=5)),
    ("unfinished_is_due", lambda: row(ended(Life.break_down), due_at=None)),
    ("unfinished_is_due", lambda: row(ended(Life.break_down), reminder=False)),
    ("one_owner", lambda: row(ended(Life.complete), owner=WORKER)),
    ("one_owner", lambda: row(ended(Life.break_down), owner=WORKER)),
    ("one_owner", lambda: row(busy(), reminder=True)),
    ("one_owner", lambda: row(busy(), token=-1)),
    ("one_owner", lambda: event(busy(), 5, token=0)),
    ("one_owner", lambda: event(busy(), 5, version=0)),
    ("one_owner", lambda: event(busy(), 7, token=9)),
    ("one_owner", lambda: event(busy(), 7, version=9)),
    ("one_owner", lambda: event(row(busy(), token=9), 7, token=9)),
    ("one_transaction", lambda: row(busy(), status=Status.HELD, owner=None, reminder=True)),
    ("one_transaction", lambda: row(ended(Life.complete), status=Status.RUNNING, due_at=5, result=None)),
    ("one_transaction", lambda: row(busy(), seen=0)),
    ("one_transaction", lambda: letter(busy(), 1, consumed_by=3)),
    ("one_transaction", lambda: letter(busy(), 1, consumed_run=None, consumed_by=None)),
    ("one_transaction", lambda: unsent(busy())),
    ("one_transaction", lambda: row(busy(), deaths=1)),
    ("history_is_gapless", lambda: without(busy(), 5)),
    ("history_is_gapless", lambda: without(busy(), 7)),
    ("history_is_gapless", lambda: event(busy(), 6, number=5)),
    ("history_is_gapless", lambda: row(busy(), events=6)),
    ("result_once", lambda: event(busy(), 6, place="1")),
    ("result_once", lambda: event(busy(), 5, place="1")),
    ("result_once", lambda: event(event(busy(), 6, place="1"), 6, type=EventType.STEP_FAILED)),
    ("result_once", lambda: event(busy(), 7, type=EventType.MESSAGE_RECEIVED, message=1)),
    ("result_once", lambda: letter(busy(), 1, consumed_run=None)),
    ("result_once", lambda: append(append(busy(), EventType.CALL_ANSWERED), EventType.CALL_REFUSED)),
    ("nothing_unheard", lambda: row(ended(Life.idle), inbox=2)),
    ("nothing_unheard", lambda: row(ended(Life.wait), inbox=2)),
    ("no_early_timer", lambda: event(busy(), 5, at=9_999 * SECOND)),
    ("no_early_timer", lambda: event(busy(), 1, at=5)),
    ("no_early_timer", lambda: event(busy(), 6, at=1_000 * SECOND + 1)),
    ("no_early_timer", lambda: event(busy(), 6, turn=1)),
    ("accepted_is_kept", lambda: unsent(busy())),
    ("accepted_is_kept", lambda: row(busy(), inbox=2)),
    ("accepted_is_kept", lambda: row(busy(), inbox=0)),
    ("accepted_is_kept", lambda: letter(busy(), 1, number=2)),
    ("accepted_is_kept", lambda: letter(busy(), 1, process=b"q" * 16)),
    ("operators_use_the_front_door", lambda: append(busy(), EventType.RESUMED, payload=None)),
    ("operators_use_the_front_door", lambda: append(busy(), EventType.RUN_OPENED, payload=None)),
    ("finished_is_final", lambda: append(ended(Life.complete), EventType.ATTEMPT_FAILED)),
    ("finished_is_final", lambda: append(ended(Life.terminate), EventType.REVIVED)),
    ("finished_is_final", lambda: row(ended(Life.complete), reminder=True)),
    ("finished_is_final", lambda: row(ended(Life.complete), result=None)),
    ("finished_is_final", lambda: row(busy(), result=b"1")),
    ("finished_is_final", lambda: row(ended(Life.fail), error=None)),
]


@pytest.mark.parametrize(("law", "plant"), PLANTED)
def test_a_planted_fault_is_found_under_the_name_of_its_law(law: str, plant: Callable[[], Life]) -> None:
    life = plant()
    findings = unsound(life.process, life.events, life.messages, life.now)
    assert law in {finding.law for finding in findings}
    assert all(finding.subject == ID and finding.text for finding in findings)


def test_before_a_fault_is_planted_nothing_is_found() -> None:
    assert busy().unsound == []
    for happens in OPS:
        assert ended(happens).unsound == []


def test_every_law_of_the_design_has_a_check_under_its_name_and_a_planted_fault() -> None:
    names = [law.__name__ for law in LAWS]
    assert names == [
        "unfinished_is_due",
        "one_owner",
        "one_transaction",
        "history_is_gapless",
        "result_once",
        "nothing_unheard",
        "no_early_timer",
        "accepted_is_kept",
        "operators_use_the_front_door",
        "finished_is_final",
    ]
    assert {law for law, _ in PLANTED} == set(names)
    assert all(law.__doc__ and law.__doc__.startswith(f"Law {n}: ") for n, law in enumerate(LAWS, 1))


def test_every_event_either_implies_a_status_or_changes_none() -> None:
    neutral = {
            EventType.STEP_COMPLETED, EventType.STEP_FAILED, EventType.TIMER_FIRED, EventType.MESSAGE_RECEIVED,
            EventType.ATTEMPT_FAILED, EventType.CHILD_STARTED, EventType.ANSWER_IGNORED, EventType.SIGNAL_SENT,
            EventType.UNDO_OWED, EventType.PATCHED, EventType.RESULT_KEPT, EventType.SET_BY_HAND, EventType.SKIPPED,
            EventType.DEADLINE_SET, EventType.PUBLISHED, EventType.ATTRIBUTES_SET, EventType.CALL_ANSWERED,
            EventType.CALL_REFUSED, EventType.KEY_RELEASED, EventType.TIMER_CHANGED, EventType.ATTEMPT_BEGUN,
            EventType.RUN_RETRIED,
             EventType.FIELDS_EDITED, EventType.VERSION_MOVED, EventType.PRIORITY_SET, EventType.ATTRIBUTES_EDITED,
             EventType.ARGUMENTS_KEPT, EventType.LOOK_CUT_SHORT,
    }  # fmt: skip
    assert set(soundness.IMPLIED) | neutral == set(EventType)
    assert not set(soundness.IMPLIED) & neutral


def test_messages_and_events_may_be_given_in_any_order() -> None:
    life = busy()
    assert unsound(life.process, life.events[::-1], life.messages[::-1], life.now) == []
