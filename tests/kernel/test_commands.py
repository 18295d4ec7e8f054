"""Commands, as the kernel decides them: every verb at every status, and what a new run keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pytest
from msgspec import json
from msgspec.structs import replace

from perdure.errors import IllegalMove
from perdure.kernel import adjust, command, manual_result, removal, run, transition
from perdure.kernel.child import ChildBegun
from perdure.kernel.command import ALLOWED, Verb
from perdure.kernel.commit import Commit, Removal
from perdure.kernel.event import Event, EventType
from perdure.kernel.failure import Failure
from perdure.kernel.message import Message, MessageType
from perdure.kernel.move import unsound_move
from perdure.kernel.names import id_text
from perdure.kernel.process import FINAL, Process, Status
from perdure.kernel.run import opening_of
from perdure.kernel.soundness import IMPLIED, unsound
from perdure.kernel.transition import Sender

NOW = 1_700_000_000_000_000
ANNA = Sender("anna", "she knows", "cli")
ID, OWNER = b"p" * 16, b"w" * 16
E = EventType
ENDS = {status: next(type for type, implied in IMPLIED.items() if implied is status) for status in Status}


def event(number: int, type: EventType, name: str = "", turn: int = 0, **more: object) -> Event:
    place = "1" if name and name != "go" else ""
    return Event(number, turn, type, NOW, **({"place": place, "name": name} | more))  # type: ignore[arg-type]


HISTORY = (
    event(1, E.STEP_COMPLETED, "reserve", 1, payload=b"1", digest=b"r"),
    event(2, E.ATTEMPT_FAILED, "charge", payload=b"{}"),
    event(3, E.STEP_FAILED, "charge", 2, payload=b"{}"),
)
"""One step that has a result, and one that has failed, which the code has taken for what it is."""


def process(status: Status, owned: bool = False, history: tuple[Event, ...] = HISTORY, **more: object) -> Process:
    final = status in FINAL
    row = Process(
        ID, "order", None, b"[[],{}]", status, version=5, token=3, owner=OWNER if owned else None,
        due_at=None if final else NOW + 9, reminder=status in (Status.HELD, Status.BROKEN), events=len(history),
        error=None if status in (Status.RUNNING, Status.COMPLETED) else Failure("X", "x").encode(),
        result=b"1" if status is Status.COMPLETED else None, opened_at=NOW, created_at=NOW, changed_at=NOW,
    )  # fmt: skip
    return replace(row, **more)


def lived(status: Status, history: tuple[Event, ...] = HISTORY) -> tuple[Event, ...]:
    """The history, and how it came to that status."""
    if status is Status.RUNNING:
        return history
    return (*history, event(len(history) + 1, ENDS[status], payload=b"{}"))


ORDERS: dict[Verb, Callable[[Process, tuple[Event, ...]], Commit]] = {
    Verb.HOLD: lambda row, past: command.held(row, ANNA, now=NOW, idle_at=NOW + 100),
    Verb.RESUME: lambda row, past: command.resumed(row, ANNA, now=NOW),
    Verb.RETRY: lambda row, past: run.retried(row, past, ANNA, now=NOW),
    Verb.RESTART: lambda row, past: run.restarted(row, past, ANNA, now=NOW),
    Verb.RESTART_FROM: lambda row, past: run.restarted_from(row, past, "reserve", ANNA, now=NOW),
    Verb.SET_RESULT: lambda row, past: manual_result.set_by_hand(row, past, "charge", b"7", ANNA, now=NOW),
    Verb.SKIP: lambda row, past: manual_result.set_by_hand(row, past, "charge", b"null", ANNA, now=NOW, skipped=True),
    Verb.CANCEL: lambda row, past: command.bounded(row, ANNA, NOW + 50, now=NOW),
    Verb.TERMINATE: lambda row, past: transition.terminated(row, ANNA, past, now=NOW),
    Verb.FAIL: lambda row, past: transition.given_up(row, ANNA, past, now=NOW),
    Verb.REMOVE: lambda row, past: removal.removed(row, ANNA, past, now=NOW),
    Verb.RELEASE_KEY: lambda row, past: removal.key_released(row, ANNA, now=NOW),
    Verb.MOVE: lambda row, past: adjust.moved(row, "2", ANNA, now=NOW),
    Verb.SET_PRIORITY: lambda row, past: adjust.with_priority(row, 0, ANNA, now=NOW),
    Verb.SET_DEADLINE: lambda row, past: adjust.with_deadline(row, NOW + 50, ANNA, now=NOW),
}
HELD, RUNNING, CANCELLED = Status.HELD, Status.RUNNING, Status.CANCELLED
AFTER: dict[Verb, dict[Status, Status]] = {
    Verb.HOLD: {RUNNING: HELD},
    Verb.RESUME: {HELD: RUNNING},
    Verb.RETRY: {HELD: RUNNING, Status.BROKEN: RUNNING, Status.FAILED: RUNNING},
    Verb.RESTART: dict.fromkeys(Status, RUNNING),
    Verb.RESTART_FROM: dict.fromkeys(Status, RUNNING),
    Verb.SET_RESULT: {RUNNING: RUNNING, HELD: HELD, Status.BROKEN: RUNNING, Status.FAILED: RUNNING},
    Verb.SKIP: {RUNNING: RUNNING, HELD: HELD, Status.BROKEN: RUNNING, Status.FAILED: RUNNING},
    Verb.CANCEL: {status: status for status in (RUNNING, HELD, Status.BROKEN)},
    Verb.TERMINATE: dict.fromkeys((RUNNING, HELD, Status.BROKEN), CANCELLED),
    Verb.FAIL: dict.fromkeys((RUNNING, HELD, Status.BROKEN), Status.FAILED),
    Verb.REMOVE: {status: status for status in FINAL},
    Verb.RELEASE_KEY: {status: status for status in FINAL},
    Verb.MOVE: {status: status for status in (RUNNING, HELD, Status.BROKEN, Status.FAILED)},
    Verb.SET_PRIORITY: {status: status for status in (RUNNING, HELD, Status.BROKEN)},
    Verb.SET_DEADLINE: {status: status for status in (RUNNING, HELD, Status.BROKEN)},
}
"""The status after each command, where it fits."""
REMOVED = {Verb.REMOVE: Removal.PROCESS, Verb.RELEASE_KEY: Removal.KEY}
"""What a command removes; where it is the process, nothing is left to say who asked for it."""
STARTS = [(status, False) for status in Status] + [(RUNNING, True)]


@pytest.mark.parametrize(("status", "owned"), STARTS)
@pytest.mark.parametrize("verb", Verb)
def test_every_verb_at_every_status_is_refused_or_leaves_a_sound_record_with_a_sender(
    verb: Verb, status: Status, owned: bool
) -> None:
    past = lived(status)
    row = process(status, owned, past, key="A-1")
    if status not in AFTER[verb]:
        with pytest.raises(IllegalMove, match=f"a process that is {status}"):
            ORDERS[verb](row, past)
        return
    commit = ORDERS[verb](row, past)
    after = commit.after
    present = (*(past if after.run == row.run else ()), *commit.events)
    assert unsound(after, present, (), NOW) == []
    if commit.removes is not Removal.PROCESS:
        fresh = [replace(one, token=after.token, version=after.version) for one in commit.events]
        assert unsound_move(row, after, fresh, NOW) == []
    assert (after.status, after.version, after.owner) == (AFTER[verb][status], 6, None)
    assert commit.removes is REMOVED.get(verb)
    if commit.removes is not Removal.PROCESS:
        assert b'"who":"anna"' in b"".join(one.payload or b"" for one in commit.events)
    gentle = verb in (Verb.CANCEL, Verb.SET_PRIORITY, Verb.SET_DEADLINE) and not owned
    assert after.token == (3 if gentle else 4)


def test_the_table_of_commands_is_the_one_that_is_kept() -> None:
    assert {verb: set(fits) for verb, fits in AFTER.items()} == {verb: set(fits) for verb, fits in ALLOWED.items()}


# -- holding -------------------------------------------------------------------------------------------------------


def test_a_held_process_says_who_holds_it_and_reminds_somebody() -> None:
    after = command.held(process(RUNNING, owned=True), ANNA, now=NOW, idle_at=NOW + 100).after
    assert (after.due_at, after.reminder) == (NOW + 100, True)
    assert Failure.decode(after.error or b"").message.startswith("by anna because: she knows")


# -- restarting ----------------------------------------------------------------------------------------------------


def begun(number: int, id: bytes, name: str, abandoned: bool = False) -> Event:
    return event(number, E.CHILD_STARTED, name, payload=ChildBegun(id_text(id), abandoned).encode())


def test_a_restart_keeps_nothing_and_asks_open_children_to_end() -> None:
    past = (
        event(1, E.UNDO_OWED, "release", place="undo/reserve:1"),
        event(2, E.STEP_COMPLETED, "reserve", 1, payload=b"1"),
        begun(3, b"a" * 16, "open"),
        begun(4, b"b" * 16, "answered"),
        begun(5, b"c" * 16, "free", abandoned=True),
        event(6, E.STEP_COMPLETED, "answered", 2, message=1),
    )
    row = process(RUNNING, True, past, inbox=4, seen=1, state=b"1", progress=b"{}", deadline=NOW + 5)
    commit = run.restarted(row, past, ANNA, now=NOW)
    after, opening = commit.after, opening_of(commit.events)
    assert (after.run, after.events, after.seen, after.opened_at, after.state, after.progress) == (
        2,
        1,
        0,
        None,
        None,
        None,
    )
    assert (after.deadline, after.due_at, commit.offered) == (None, NOW, 1)
    assert [(sent.process, sent.type) for sent in commit.sends] == [(b"a" * 16, MessageType.CANCEL)]
    assert (opening.void, opening.not_undone, opening.origins) == (4, ("reserve:1",), ())
    assert opening.origin("reserve:1", 0, 2) == 2


def test_a_restarted_process_has_another_chance_than_before_and_keeps_it_at_a_retry() -> None:
    once = run.restarted(process(Status.FAILED), HISTORY, ANNA, now=NOW)
    assert opening_of(once.events).seed == 2
    past = (*once.events, event(2, E.STEP_FAILED, "charge", 1, payload=b"{}"), event(3, E.FAILED))
    failed = replace(once.after, status=Status.FAILED, due_at=None, events=3)
    assert opening_of(run.retried(failed, past, ANNA, now=NOW).events).seed == 2


GATHERED = (
    event(1, E.STEP_COMPLETED, "first", 1, payload=b"1", digest=b"f"),
    event(2, E.ATTEMPT_FAILED, "chosen", payload=b"{}"),
    begun(3, b"a" * 16, "child"),
    event(4, E.STEP_COMPLETED, "chosen", 2, payload=b"2", digest=b"c"),
    event(5, E.STEP_COMPLETED, "beside", 2, payload=b"3", digest=b"b"),
    event(6, E.MESSAGE_RECEIVED, "go", 3, message=1),
    begun(7, b"b" * 16, "later"),
    event(8, E.STEP_FAILED, "flop", 4, payload=b"{}"),
    event(9, E.FAILED, payload=b"{}"),
)


def from_chosen(**more: object) -> Commit:
    row = process(Status.FAILED, False, GATHERED, inbox=2, seen=1, **more)
    return run.restarted_from(row, GATHERED, "chosen", ANNA, now=NOW)


def test_a_restart_from_a_step_keeps_what_was_before_it_and_offers_what_ran_beside() -> None:
    commit = from_chosen()
    assert [(one.number, one.type, one.name) for one in commit.events] == [
        (1, E.RUN_OPENED, ""),
        (2, E.STEP_COMPLETED, "first"),
        (3, E.CHILD_STARTED, "child"),
        (4, E.RESULT_KEPT, "beside"),
    ]
    assert commit.events[3].digest == b"b" and commit.events[3].payload == b"3"
    assert (commit.offered, commit.after.seen, opening_of(commit.events).void) == (1, 0, 2)
    assert [sent.process for sent in commit.sends] == [b"b" * 16]


def test_rule_21_a_restarted_step_has_a_fresh_key_and_those_beside_it_keep_theirs() -> None:
    opening = opening_of(from_chosen().events)
    assert [opening.origin(slot, 2, 2) for slot in ("chosen:1", "beside:1")] == [2, 1]
    assert opening.origin("next:1", 9, 2) == 2


def test_rule_21_a_fresh_key_outlives_a_later_retry_unless_the_step_is_asked_for_anew() -> None:
    once = from_chosen()
    past = (
        *once.events,
        event(5, E.STEP_COMPLETED, "chosen", 3, payload=b"5"),
        event(6, E.STEP_FAILED, "flop", 4, payload=b"{}"),
        event(7, E.FAILED, payload=b"{}"),
    )
    failed = replace(once.after, status=Status.FAILED, due_at=None, events=7)
    opening = opening_of(run.retried(failed, past, ANNA, now=NOW).events)
    assert [opening.origin(slot, 2, 3) for slot in ("first:1", "chosen:1")] == [1, 2]
    assert opening.origin("chosen:1", 99, 3) == 3


def test_what_was_kept_beside_and_has_not_counted_yet_is_kept_again() -> None:
    once = from_chosen()
    again = run.restarted_from(once.after, once.events, "first", ANNA, now=NOW)
    assert [one.name for one in again.events if one.type is E.RESULT_KEPT] == ["beside"]


@pytest.mark.parametrize(
    ("step", "told"),
    [("nothing", "no step 'nothing' has been answered"), ("child", "no step 'child'"), ("twice", "twice:1, twice:2")],
)
def test_a_restart_from_a_step_that_is_not_one_answered_step_is_refused(step: str, told: str) -> None:
    past = (
        *GATHERED[:3],
        event(4, E.STEP_COMPLETED, "twice", 5, payload=b"1"),
        event(5, E.STEP_COMPLETED, "twice", 6, payload=b"1", place="2"),
    )
    with pytest.raises(IllegalMove, match=told):
        run.restarted_from(process(RUNNING, False, past), past, step, ANNA, now=NOW)
    named = run.restarted_from(process(RUNNING, False, past), past, "twice:2", ANNA, now=NOW)
    assert [one.place for one in named.events if one.name == "twice"] == ["1"]


def undone(*steps: str) -> tuple[Event, ...]:
    """Two bookings, of which some were undone."""
    past = [
        event(1, E.UNDO_OWED, "release", place="undo/book:1"),
        event(2, E.STEP_COMPLETED, "book", 1, payload=b"1"),
        event(3, E.UNDO_OWED, "release", place="undo/book:2"),
        event(4, E.STEP_COMPLETED, "book", 2, payload=b"1", place="2"),
    ]
    for step in steps:
        past.append(event(len(past) + 1, E.STEP_COMPLETED, "release", 9, place=f"undo/{step}"))
    return (*past, event(len(past) + 1, E.FAILED, payload=b"{}"))


def test_a_restart_from_a_step_is_refused_where_what_it_keeps_was_undone() -> None:
    past = undone("book:2", "book:1")
    row = process(Status.FAILED, False, past)
    with pytest.raises(IllegalMove, match="compensated: book:1 would count as done"):
        run.restarted_from(row, past, "book:2", ANNA, now=NOW)
    commit = run.restarted_from(row, past, "book:1", ANNA, now=NOW)
    assert [one.type for one in commit.events] == [E.RUN_OPENED, E.UNDO_OWED, E.RESULT_KEPT]


def test_a_restart_from_a_step_lists_what_it_drops_and_does_not_undo() -> None:
    past = undone()
    commit = run.restarted_from(process(Status.FAILED, False, past), past, "book:1", ANNA, now=NOW)
    assert opening_of(commit.events).not_undone == ("book:2", "book:1")


# -- by hand -------------------------------------------------------------------------------------------------------


def by_hand(past: Iterable[Event], step: str, status: Status = RUNNING, **more: object) -> Commit:
    history = tuple(past)
    return manual_result.set_by_hand(process(status, False, history, **more), history, step, b"7", ANNA, now=NOW + 5)


def test_a_result_by_hand_is_a_turn_of_its_own_after_who_has_set_it() -> None:
    commit = by_hand(HISTORY[:2], "charge")
    assert [(one.type, one.turn, one.payload) for one in commit.events] == [
        (E.SET_BY_HAND, 0, ANNA.encode()),
        (E.STEP_COMPLETED, 2, b"7"),
    ]
    assert commit.after.run == 1 and commit.events[1].digest is None


def test_law_no_early_timer_a_result_by_hand_is_no_older_than_the_first_turn_where_the_clock_was_set_back() -> None:
    commit = by_hand(HISTORY[:2], "charge", opened_at=NOW + 1_000)
    assert commit.events[1].at == NOW + 1_000


def test_a_failed_step_gets_its_result_in_a_new_run_in_place_of_its_failure() -> None:
    commit = by_hand(lived(Status.FAILED), "charge", Status.FAILED)
    assert [one.type for one in commit.events] == [E.RUN_OPENED, E.STEP_COMPLETED, E.SET_BY_HAND, E.STEP_COMPLETED]
    assert commit.after.run == 2


def test_a_held_process_whose_failed_step_gets_a_result_is_held_in_its_new_run() -> None:
    commit = by_hand(lived(HELD), "charge", HELD)
    assert commit.events[-1].type is E.HELD and commit.after.status is HELD and commit.after.reminder


def test_a_child_whose_answer_is_set_by_hand_is_asked_to_end() -> None:
    commit = by_hand([begun(1, b"a" * 16, "open"), begun(2, b"b" * 16, "other")], "open")
    assert [sent.process for sent in commit.sends] == [b"a" * 16]


@pytest.mark.parametrize(
    ("step", "told"),
    [
        ("reserve", "has its result"),
        ("reserve:1", "has its result"),
        ("ship", "nothing is known yet of a step 'ship'; name it with its place, like ship:1"),
        ("ship", "for the first; without a result are charge:1, tried:1, tried:2$"),
        ("tried", "tried:1, tried:2"),
    ],
)
def test_a_step_that_is_not_one_open_step_gets_no_result(step: str, told: str) -> None:
    past = (
        *HISTORY,
        event(4, E.ATTEMPT_FAILED, "tried", payload=b"{}"),
        event(5, E.ATTEMPT_FAILED, "tried", payload=b"{}", place="2"),
    )
    with pytest.raises(IllegalMove, match=told):
        by_hand(past, step)


def test_an_open_step_is_known_by_its_place_or_by_its_report() -> None:
    assert by_hand([], "ship:2").events[1].place == "2"
    assert by_hand([], "ship", progress=b'{"ship:.2:3":{}}').events[1].place == ".2:3"


def test_a_process_that_has_not_begun_has_no_open_step() -> None:
    with pytest.raises(IllegalMove, match="has not begun"):
        by_hand([], "ship:1", opened_at=None)


# -- cancelling with a deadline --------------------------------------------------------------------------------------


@dataclass
class Case:
    deadline: int | None
    after: int


@pytest.mark.parametrize("case", [Case(None, NOW + 50), Case(NOW + 90, NOW + 50), Case(NOW + 20, NOW + 20)])
def test_the_earlier_deadline_holds(case: Case) -> None:
    assert (
        command.bounded(process(RUNNING, deadline=case.deadline), ANNA, NOW + 50, now=NOW).after.deadline == case.after
    )


def test_a_deadline_in_nobodys_hand_changes_nothing_else() -> None:
    row = process(RUNNING, awaiting="signal go", reminder=True)
    after = command.bounded(row, ANNA, NOW + 50, now=NOW).after
    assert after == replace(row, version=6, events=row.events + 1, deadline=NOW + 50)


@pytest.mark.parametrize(
    ("payload", "until"), [(command.wish(ANNA, 17), 17), (ANNA.encode(), None), (b"null", None), (b"\xff", None)]
)
def test_a_wish_to_cancel_says_until_when_or_not(payload: bytes, until: int | None) -> None:
    assert command.until_of(Message(ID, ID, MessageType.CANCEL, payload=payload)) == until


def test_who_was_asked_to_cancel_and_has_not_is_terminated_in_the_name_of_who_asked() -> None:
    commit = transition.terminated(process(RUNNING), ANNA, now=NOW, asked=True)
    told = json.decode(commit.events[-1].payload or b"")
    assert told == {"who": "anna", "why": "she knows", "origin": "cli", "asked": True}
    assert "after it was asked to cancel, by anna" in Failure.decode(commit.after.error or b"").message
