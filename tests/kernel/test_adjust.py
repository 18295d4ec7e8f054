"""An adjustment changes the version, the priority or the deadline of a process, and nothing that it has recorded."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as some
from msgspec import json
from msgspec.structs import replace

from perdure.errors import IllegalMove
from perdure.kernel import adjust, run
from perdure.kernel.commit import Commit
from perdure.kernel.edit import with_attributes
from perdure.kernel.event import Event, EventType
from perdure.kernel.failure import Failure
from perdure.kernel.inverse import taken_back
from perdure.kernel.move import unsound_move
from perdure.kernel.patch import has_passed
from perdure.kernel.process import FINAL, Process, Status
from perdure.kernel.soundness import unsound
from perdure.kernel.transition import Sender

NOW = 1_700_000_000_000_000
ORIGIN = "operation 7"
ANN = Sender("ann", "the fix is out", ORIGIN)
BOB = Sender("bob", "a mistake", "cli")
E = EventType
PAST = (Event(1, 1, E.STEP_COMPLETED, NOW, "1", "reserve", b"1", digest=b"r"),)
IDLE = Process(
    b"p" * 16, "order", "A-1", b"[]", version=5, token=3, due_at=NOW + 99, events=1, awaiting="signal go",
    deadline=NOW + 500, code="1", opened_at=NOW, created_at=NOW, changed_at=NOW,
)  # fmt: skip
OWNED = replace(IDLE, owner=b"w" * 16, awaiting=None)
DELAYED = replace(IDLE, events=0, version=0, token=0, opened_at=None, awaiting=None)

Adjust = Callable[[Process], Commit]
MOVE: Adjust = lambda row: adjust.moved(row, "2", ANN, now=NOW)  # noqa: E731
PRIORITY: Adjust = lambda row: adjust.with_priority(row, 0, ANN, now=NOW)  # noqa: E731
DEADLINE: Adjust = lambda row: adjust.with_deadline(row, NOW + 7, ANN, now=NOW)  # noqa: E731
VERBS = {"move": MOVE, "set-priority": PRIORITY, "set-deadline": DEADLINE}


def of(status: Status) -> tuple[Process, tuple[Event, ...]]:
    """The process in that status, and its history."""
    if status is Status.RUNNING:
        return IDLE, PAST
    failed = Failure("X", "x").encode()
    ends = {Status.HELD: E.HELD, Status.BROKEN: E.BROKEN, Status.FAILED: E.FAILED}
    past = (*PAST, Event(2, 0, ends[status], NOW, payload=failed))
    due_at = None if status in FINAL else NOW + 99
    waits = status in (Status.HELD, Status.BROKEN)
    return replace(IDLE, status=status, events=2, error=failed, due_at=due_at, reminder=waits, awaiting=None), past


def stored(commit: Commit) -> list[Event]:
    """The events of a commit as a store writes them."""
    after = commit.after
    return [replace(event, token=after.token, version=after.version) for event in commit.events]


@pytest.mark.parametrize("verb", [PRIORITY, DEADLINE])
def test_of_a_process_in_nobodys_hand_nothing_else_changes(verb: Adjust) -> None:
    after = verb(IDLE).after
    same = replace(after, version=5, events=1, priority=IDLE.priority, deadline=IDLE.deadline)
    assert same == IDLE and after.version == 6 and after != IDLE


@pytest.mark.parametrize("verb", VERBS.values())
def test_rule_22_it_takes_the_process_from_its_owner_and_lets_it_go_on_at_once(verb: Adjust) -> None:
    after = verb(OWNED).after
    assert (after.owner, after.token, after.due_at, after.status) == (None, 4, NOW, Status.RUNNING)


def test_a_moved_process_is_due_at_once_so_that_its_replay_shows_whether_the_code_fits() -> None:
    commit = MOVE(replace(IDLE, reminder=True))
    assert (commit.after.code, commit.after.due_at, commit.after.reminder, commit.after.token) == ("2", NOW, False, 4)


def test_a_moved_process_that_has_not_begun_waits_for_its_time_and_takes_patches_as_at_its_beginning() -> None:
    commit = MOVE(DELAYED)
    assert (commit.after.code, commit.after.due_at, commit.after.opened_at) == ("2", DELAYED.due_at, None)
    assert not has_passed((*commit.events, *PRIORITY(commit.after).events))


@pytest.mark.parametrize("status", [Status.HELD, Status.BROKEN, Status.FAILED])
def test_what_waits_for_a_person_stays_so_when_it_is_moved(status: Status) -> None:
    row, past = of(status)
    commit = MOVE(row)
    assert (commit.after.status, commit.after.due_at, commit.after.error) == (status, row.due_at, row.error)
    assert unsound(commit.after, (*past, *stored(commit)), (), NOW) == []
    assert unsound_move(row, commit.after, stored(commit), NOW) == []


def test_a_failed_process_that_was_moved_is_retried_with_the_other_code_from_its_last_good_event() -> None:
    past = (*PAST, Event(2, 2, E.STEP_FAILED, NOW, "1", "charge", b"{}"), Event(3, 0, E.FAILED, NOW, payload=b"{}"))
    commit = MOVE(replace(of(Status.FAILED)[0], events=3))
    again = run.retried(commit.after, (*past, *commit.events), BOB, now=NOW)
    assert again.after.code == "2"
    assert [event.type for event in again.events] == [E.RUN_OPENED, E.STEP_COMPLETED]


@pytest.mark.parametrize("between", [(), (E.VERSION_MOVED,), (E.PRIORITY_SET, E.DEADLINE_SET)])
def test_what_was_given_up_after_it_broke_is_no_better_for_an_adjustment_between(between: tuple[E, ...]) -> None:
    types = (E.STEP_COMPLETED, E.STEP_FAILED, E.BROKEN, *between, E.GIVEN_UP)
    past = [
        Event(number, number if number < 3 else 0, type, NOW, "1" if number < 3 else "", str(number), b"{}")
        for number, type in enumerate(types, 1)
    ]
    row = replace(of(Status.FAILED)[0], events=len(past))
    kept = run.retried(row, past, BOB, now=NOW).events
    assert [event.type for event in kept] == [E.RUN_OPENED, E.STEP_COMPLETED]


def test_a_move_is_refused_where_nobody_hosts_the_version_and_says_what_is_hosted() -> None:
    hosted = {("order", "1"), ("order", "2.0"), ("bill", "2")}
    with pytest.raises(IllegalMove, match=r"no live worker hosts workflow 'order' version '2'.*'1', '2\.0'.*--force"):
        adjust.moved(IDLE, "2", ANN, now=NOW, hosted=hosted)
    assert adjust.moved(IDLE, "2.0", ANN, now=NOW, hosted=hosted).after.code == "2.0"


@pytest.mark.parametrize("kind", ["@charge", "perdure/operation"])
def test_what_has_no_versions_is_not_moved(kind: str) -> None:
    with pytest.raises(IllegalMove, match="no versions"):
        MOVE(replace(IDLE, kind=kind))


@pytest.mark.parametrize(
    ("verb", "same"), [(MOVE, {"code": "2"}), (PRIORITY, {"priority": 0}), (DEADLINE, {"deadline": NOW + 7})]
)
def test_what_it_has_already_is_said_and_not_written(verb: Adjust, same: dict[str, object]) -> None:
    with pytest.raises(IllegalMove, match="already: there is nothing to do"):
        verb(replace(IDLE, **same))


def test_a_deadline_that_has_passed_is_refused() -> None:
    with pytest.raises(IllegalMove, match="passed already"):
        adjust.with_deadline(IDLE, NOW, ANN, now=NOW)


# -- taking it back ------------------------------------------------------------------------------------------------


def back(verb: str, row: Process, history: tuple[Event, ...], **more: object) -> Process:
    commit = taken_back(row, history, verb, ORIGIN, BOB, now=NOW, idle_at=NOW + 9, **more)  # type: ignore[arg-type]
    assert json.decode(commit.events[0].payload or b"")["who"] == "bob"
    return commit.after


@pytest.mark.parametrize("verb", VERBS)
def test_what_was_adjusted_gets_its_old_value_unless_a_person_has_set_another_one(verb: str) -> None:
    commit = VERBS[verb](IDLE)
    past = (*PAST, *commit.events)
    after = back(verb, commit.after, past)
    assert (after.code, after.priority, after.deadline) == (IDLE.code, IDLE.priority, IDLE.deadline)
    by_hand = replace(commit.events[0], number=3, payload=BOB.encode())
    with pytest.raises(IllegalMove, match="a person has set another one since"):
        back(verb, replace(commit.after, events=3), (*past, by_hand))


def test_a_move_by_which_it_broke_is_taken_back_and_one_whose_code_has_gone_on_is_not() -> None:
    commit = MOVE(IDLE)
    past = (*PAST, *commit.events)
    broken = replace(commit.after, status=Status.BROKEN, reminder=True, error=b"{}", events=3, due_at=NOW + 9)
    assert back("move", broken, (*past, Event(3, 0, E.BROKEN, NOW, payload=b"{}"))).code == "1"
    gone_on = Event(3, 2, E.STEP_COMPLETED, NOW, "1", "charge", b"1")
    with pytest.raises(IllegalMove, match="gone on with the other version"):
        back("move", replace(commit.after, events=3), (*past, gone_on))


def test_a_move_is_taken_back_though_its_attributes_were_edited_since() -> None:
    commit = MOVE(DELAYED)
    edited = with_attributes(commit.after, commit.events, {"stage": "late"}, BOB, now=NOW)
    assert back("move", edited.after, (*commit.events, *edited.events)).code == "1"


def test_an_edit_that_a_new_run_has_kept_is_not_taken_back() -> None:
    edited = with_attributes(IDLE, PAST, {"stage": "late"}, ANN, now=NOW)
    past = (*PAST, *edited.events, Event(3, 2, E.STEP_FAILED, NOW, "1", "charge", b"{}"))
    again = run.retried(replace(edited.after, status=Status.FAILED, events=3), past, BOB, now=NOW)
    assert [event.type for event in again.events] == [E.RUN_OPENED, E.STEP_COMPLETED, E.ATTRIBUTES_EDITED]
    with pytest.raises(IllegalMove, match="not commanded it in its present run"):
        back("edit-attributes", again.after, again.events)


def test_a_move_is_not_taken_back_to_a_version_that_nobody_hosts_any_more() -> None:
    commit = MOVE(IDLE)
    with pytest.raises(IllegalMove, match="no live worker"):
        back("move", commit.after, (*PAST, *commit.events), hosted={("order", "2")})


# -- in any order ----------------------------------------------------------------------------------------------------

_ORDERS = some.one_of(
    some.tuples(some.just("move"), some.sampled_from(["", "1", "2", "3"])),
    some.tuples(some.just("set-priority"), some.integers(0, 9)),
    some.tuples(some.just("set-deadline"), some.one_of(some.none(), some.integers(-5, 90))),
)


def carried_out(row: Process, verb: str, value: object, now: int) -> Commit:
    if verb == "move":
        return adjust.moved(row, str(value), ANN, now=now, hosted={("order", "1"), ("order", "2"), ("order", "")})
    if verb == "set-priority":
        return adjust.with_priority(row, int(str(value)), ANN, now=now)
    return adjust.with_deadline(row, None if value is None else now + int(str(value)), ANN, now=now)


@given(some.sampled_from([IDLE, OWNED]), some.sampled_from(list(Status)[:3]), some.lists(_ORDERS, max_size=8))
def test_any_adjustments_one_after_another_leave_a_sound_record_and_the_last_value(
    running: Process, status: Status, orders: list[tuple[str, object]]
) -> None:
    row, past = (running, PAST) if status is Status.RUNNING else of(status)
    for now, (verb, value) in enumerate(orders, NOW):
        try:
            commit = carried_out(row, verb, value, now)
        except IllegalMove:
            continue
        past = (*past, *stored(commit))
        assert unsound(commit.after, past, (), now) == []
        assert unsound_move(row, commit.after, past[-1:], now) == []
        after = commit.after
        assert {"move": after.code, "set-priority": after.priority}.get(verb, value) == value
        assert (after.status, after.state, after.run, after.opened_at) == (
            row.status,
            row.state,
            row.run,
            row.opened_at,
        )
        row = after
