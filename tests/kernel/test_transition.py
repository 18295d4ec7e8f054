"""Transitions: pure decisions, each a claim about the one commit that they give."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from msgspec import json
from msgspec.structs import replace

from perdure.errors import IllegalMove
from perdure.kernel import run, transition
from perdure.kernel.child import ChildBegun
from perdure.kernel.commit import Commit, Outcome
from perdure.kernel.event import Event, EventType
from perdure.kernel.failure import Failure
from perdure.kernel.names import id_text
from perdure.kernel.process import FINAL, Process, Status
from perdure.kernel.run import opening_of
from perdure.kernel.soundness import unsound
from perdure.kernel.transition import Sender
from perdure.kernel.worker import Hang
from perdure.limits import ALONE_DEATHS, SUSPECT_DEATHS

NOW = 1_700_000_000_000_000
ID = bytes(range(16))
WORKER = b"w" * 16
ANNA = Sender("anna", "the bank was down", "cli")


def in_hand(**changes: object) -> Process:
    process = Process(
        ID,
        "order",
        None,
        b"[]",
        owner=WORKER,
        token=3,
        version=5,
        due_at=NOW + 1,
        created_at=NOW - 9,
        opened_at=NOW - 9,
    )
    return replace(process, **changes)


def turned(outcome: Outcome, *events: Event, process: Process | None = None) -> Commit:
    return transition.turn(process or in_hand(), events, outcome, now=NOW, lease=15, idle_at=NOW + 100)


def test_a_busy_turn_keeps_its_owner_and_asks_for_a_lease() -> None:
    commit = turned(Outcome(busy=True))
    assert (commit.after.owner, commit.lease, commit.after.due_at) == (WORKER, 15, None)


def test_a_turn_without_work_lets_go_and_is_due_at_its_timer() -> None:
    commit = turned(Outcome(wake_at=NOW + 7))
    assert (commit.after.owner, commit.lease, commit.after.due_at, commit.after.reminder) == (None, 0, NOW + 7, False)


def test_a_turn_that_only_waits_for_a_message_leaves_a_reminder() -> None:
    commit = turned(Outcome(awaiting="signal approval"))
    assert (commit.after.due_at, commit.after.reminder) == (NOW + 100, True)


@pytest.mark.parametrize("status", sorted(FINAL))
def test_an_ending_turn_is_due_never_again_and_ends_with_its_fact(status: Status) -> None:
    commit = turned(Outcome(status, error=b"{}"), Event(1, 1, EventType.STEP_COMPLETED, NOW, "1", "pay"))
    assert commit.after.due_at is None and commit.after.owner is None and commit.lease == 0
    assert [event.number for event in commit.events] == [1, 2]
    assert commit.events[-1].type.name == status.name


def test_a_turn_raises_the_version_and_keeps_the_token() -> None:
    commit = turned(Outcome(busy=True))
    assert (commit.token, commit.version) == (3, 5)
    assert (commit.after.token, commit.after.version) == (3, 6)


def test_an_orphan_is_freed_with_a_new_token_and_its_death_is_counted() -> None:
    commit = transition.orphaned(in_hand(), now=NOW, died=True, worker="w", idle_at=NOW + 100)
    after = commit.after
    assert (after.token, after.owner, after.due_at, after.deaths, after.status) == (4, None, NOW, 1, Status.RUNNING)
    assert commit.events[0].type is EventType.REVIVED


def test_rule_13_a_silent_worker_makes_nobody_a_suspect() -> None:
    commit = transition.orphaned(in_hand(), now=NOW, died=False, worker="w", idle_at=NOW + 100)
    assert (commit.after.deaths, commit.after.alone_deaths) == (0, 0)


def test_rule_13_a_death_among_neighbours_never_parks() -> None:
    process = in_hand()
    for _ in range(SUSPECT_DEATHS):
        process = transition.orphaned(process, now=NOW, died=True, worker="w", idle_at=NOW + 100).after
        assert process.status is Status.RUNNING
    assert (process.deaths, process.alone_deaths) == (SUSPECT_DEATHS, 0)


def test_rule_13_too_many_deaths_alone_park_with_the_evidence() -> None:
    process = in_hand(deaths=SUSPECT_DEATHS, alone_deaths=ALONE_DEATHS - 1)
    commit = transition.orphaned(process, now=NOW, died=True, worker="box:17", idle_at=NOW + 100)
    assert commit.after.status is Status.BROKEN and commit.after.reminder
    assert commit.after.error is not None and "box:17" in Failure.decode(commit.after.error).message


def test_what_hung_its_worker_is_counted_alone_and_its_neighbours_are_no_suspects() -> None:
    hung, neighbour = in_hand(), replace(in_hand(), id=bytes(16))
    hang = Hang(hung.id, "pay:1", 9.0, "in block_here")
    of = {died: hung_by(hang, hung, died=died).after for died in (True, False)}
    assert [(after.deaths, after.alone_deaths, after.status) for after in of.values()] == [(1, 0, Status.RUNNING)] * 2
    for died in (True, False):
        assert hung_by(hang, neighbour, died=died).after.deaths == 0


def test_what_hangs_while_it_runs_alone_is_parked_at_once_with_the_stack() -> None:
    hung = in_hand(deaths=SUSPECT_DEATHS)
    commit = hung_by(Hang(hung.id, "pay:1", 9.0, "in block_here"), hung, died=True)
    assert commit.after.status is Status.BROKEN and commit.after.error is not None
    failure = Failure.decode(commit.after.error)
    assert (failure.type, failure.trace) == ("Hung", "in block_here")
    assert "step pay:1" in failure.message and "box:17" in failure.message


def test_evidence_of_a_hang_that_cannot_be_read_is_none() -> None:
    assert Hang.read(None) is None
    assert Hang.read(b'{"by": "a later version"}') is None
    assert Hang.read(Hang(b"p").encode()) == Hang(b"p")


def hung_by(hang: Hang, process: Process, *, died: bool) -> Commit:
    return transition.orphaned(process, now=NOW, died=died, worker="box:17", idle_at=NOW + 100, hang=hang)


def test_rule_13_deaths_are_forgotten_when_what_was_in_flight_is_recorded() -> None:
    process = in_hand(deaths=2, alone_deaths=1)
    commit = transition.turn(process, (), Outcome(busy=True), now=NOW, lease=1, idle_at=NOW, cleared=True)
    assert (commit.after.deaths, commit.after.alone_deaths) == (0, 0)


def test_rule_10_a_release_keeps_the_token() -> None:
    commit = transition.released(in_hand(), due_at=NOW)
    assert (commit.after.token, commit.after.owner, commit.after.due_at) == (3, None, NOW)


def test_what_has_happened_stands_before_what_a_commit_decides_and_no_time_runs_back() -> None:
    commit = transition.broken(in_hand(events=4), Failure(type="Lost", message="its code"), now=NOW, idle_at=NOW + 100)
    lost = Event(9, 0, EventType.REVIVED, NOW + 2, payload=b"{}")
    told = transition.preceded(commit, (lost,))
    events = [(event.number, event.type, event.at) for event in told.events]
    assert events == [(5, EventType.REVIVED, NOW + 2), (6, EventType.BROKEN, NOW + 2)]
    assert (told.after.events, transition.unrecorded(told).after.events) == (6, 4)
    assert transition.preceded(commit, ()) is commit


def test_rule_22_terminating_needs_no_turn_and_makes_a_new_token() -> None:
    commit = transition.terminated(in_hand(), ANNA, now=NOW)
    assert (commit.after.status, commit.after.token, commit.after.owner) == (Status.CANCELLED, 4, None)
    assert json.decode(commit.events[-1].payload or b"")["who"] == "anna"


@pytest.mark.parametrize("status", [Status.COMPLETED, Status.CANCELLED])
def test_finished_is_final_for_terminate_retry_expire_and_park(status: Status) -> None:
    done = in_hand(status=status, owner=None, due_at=None)
    for command in (
        lambda: transition.terminated(done, ANNA, now=NOW),
        lambda: run.retried(done, [], ANNA, now=NOW),
        lambda: transition.expired(done, now=NOW),
        lambda: transition.broken(done, Failure("X", "x"), now=NOW, idle_at=NOW),
    ):
        with pytest.raises(IllegalMove):
            command()


def test_a_running_process_is_not_retried() -> None:
    with pytest.raises(IllegalMove, match="goes on by itself"):
        run.retried(in_hand(), [], ANNA, now=NOW)


def failed_history() -> list[Event]:
    return [
        Event(1, 1, EventType.STEP_COMPLETED, NOW, "1", "reserve", b"1"),
        Event(2, 2, EventType.MESSAGE_RECEIVED, NOW, "", "go", message=1),
        Event(3, 0, EventType.ATTEMPT_FAILED, NOW, "1", "charge", b"{}"),
        Event(4, 3, EventType.STEP_FAILED, NOW, "1", "charge", b"{}"),
        Event(5, 4, EventType.MESSAGE_RECEIVED, NOW, "", "late", message=2),
        Event(6, 5, EventType.STEP_COMPLETED, NOW, "1", "refund", b"1"),
        Event(7, 0, EventType.FAILED, NOW),
    ]


def failed() -> Process:
    return in_hand(status=Status.FAILED, owner=None, due_at=None, events=7, inbox=2, seen=2, error=b"{}")


def test_rule_21_a_retry_opens_a_new_run_with_what_was_good_before_the_failure() -> None:
    commit = run.retried(failed(), failed_history(), ANNA, now=NOW)
    assert commit.after.run == 2 and commit.after.status is Status.RUNNING and commit.after.due_at == NOW
    assert [(event.number, event.type.name) for event in commit.events] == [
        (1, "RUN_OPENED"), (2, "STEP_COMPLETED"), (3, "MESSAGE_RECEIVED"),
    ]  # fmt: skip
    assert commit.after.events == 3


def test_rule_21_messages_received_after_the_failure_are_offered_again() -> None:
    commit = run.retried(failed(), failed_history(), ANNA, now=NOW)
    assert (commit.after.seen, commit.offered) == (1, 2)


def test_rule_21_a_retry_remembers_in_which_run_each_step_was_first_asked_for() -> None:
    once = run.retried(failed(), failed_history(), ANNA, now=NOW)
    assert opening_of(once.events).origins == ((3, 1),)
    history = [*once.events, Event(4, 9, EventType.STEP_COMPLETED, NOW, "1", "charge", b"1"),
               Event(5, 10, EventType.STEP_FAILED, NOW, "1", "ship", b"{}")]  # fmt: skip
    again = replace(once.after, status=Status.FAILED, due_at=None, events=5, inbox=2)
    twice = run.retried(again, history, ANNA, now=NOW)
    assert opening_of(twice.events).origins == ((3, 1), (4, 2))


def test_a_broken_process_goes_on_in_its_run() -> None:
    process = in_hand(status=Status.BROKEN, owner=None, reminder=True, deaths=2, alone_deaths=3, events=4)
    commit = run.retried(process, [], ANNA, now=NOW)
    assert (commit.after.run, commit.after.status, commit.after.deaths) == (1, Status.RUNNING, 0)
    assert commit.events == (Event(5, 0, EventType.RESUMED, NOW, payload=ANNA.encode()),)


def test_every_transition_leaves_a_sound_row() -> None:
    commits = [
        turned(Outcome(wake_at=NOW + 1)),
        turned(Outcome(Status.FAILED, error=b"{}")),
        transition.orphaned(in_hand(), now=NOW, died=True, worker="w", idle_at=NOW + 5),
        transition.terminated(in_hand(), ANNA, now=NOW),
        transition.expired(in_hand(), now=NOW),
        transition.broken(in_hand(), Failure("X", "x"), now=NOW, idle_at=NOW + 5),
        transition.released(in_hand(), due_at=NOW),
    ]
    for commit in commits:
        assert unsound(commit.after, commit.events, (), NOW) == [], commit


@pytest.mark.parametrize(
    "ended",
    [transition.expired, partial(transition.terminated, sender=ANNA, asked=True)],
    ids=["expired", "terminated"],
)
def test_a_process_over_its_deadline_has_ended_no_earlier_though_whoever_ends_it_is_behind_the_store(
    ended: Callable[..., Commit],
) -> None:
    [end] = ended(in_hand(deadline=NOW + 5), now=NOW).events
    assert end.at == NOW + 5
    [end] = ended(in_hand(deadline=NOW - 5), now=NOW).events
    assert end.at == NOW


@pytest.mark.parametrize("record", [b'{"id":"nonsense"}', b'{"id":"ab"}', b"nonsense"])
def test_a_parent_with_a_damaged_record_of_a_child_can_be_ended_and_its_other_children_are_told(record: bytes) -> None:
    records = (record, ChildBegun(id_text(WORKER)).encode())
    history = [Event(n, 1, EventType.CHILD_STARTED, NOW, str(n), "parcel", raw) for n, raw in enumerate(records, 1)]
    commit = transition.terminated(in_hand(events=2), ANNA, history, now=NOW)
    assert [message.process for message in commit.sends] == [WORKER]
