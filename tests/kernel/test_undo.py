"""Undos in a history: what is owed, what was undone, and what a command makes of it, without the process's code."""

from __future__ import annotations

import pytest
from msgspec import json
from msgspec.structs import replace

from perdure.errors import IllegalMove
from perdure.kernel import run, transition
from perdure.kernel.event import Event, EventType
from perdure.kernel.failure import Failure
from perdure.kernel.process import Process, Status
from perdure.kernel.transition import Sender
from perdure.kernel.undo import listed, owed, undo_place, undoes, undone
from perdure.limits import UNDO_ROWS

NOW = 1_700_000_000_000_000
ANNA = Sender("anna", "enough", "cli")
ORDER = Process(bytes(16), "order", None, b"[]", due_at=NOW, created_at=NOW, opened_at=NOW)


def history(*facts: str) -> list[Event]:
    """Events from words: ``owes charge:1``, ``undid charge:1``, ``did charge:1``, ``failed charge:1``, ``expired``."""
    types = {"owes": EventType.UNDO_OWED, "failed": EventType.STEP_FAILED, "expired": EventType.EXPIRED}
    events = []
    for number, fact in enumerate(facts, 1):
        verb, _, step = fact.partition(" ")
        name, _, place = step.partition(":")
        if verb in ("owes", "undid"):
            name, place = "refund", undo_place(name, place)
        events.append(Event(number, number, types.get(verb, EventType.STEP_COMPLETED), NOW, place, name))
    return events


LIFE = history("owes charge:1", "did charge:1", "did look:1", "owes ship:.2:1", "owes mail:1", "undid mail:1")


def test_a_place_says_which_step_is_undone_there() -> None:
    assert undoes(undo_place("charge", ".2:1")) == "charge:.2:1"
    assert undoes(".2:1") is None


def test_a_history_tells_what_is_owed_the_last_first_also_for_steps_without_an_answer() -> None:
    assert owed(LIFE) == ["ship:.2:1", "charge:1"]
    assert undone(LIFE) == ["mail:1"]


def test_an_error_lists_as_many_steps_as_fit_and_counts_the_others() -> None:
    steps = [f"step:{number}" for number in range(UNDO_ROWS + 2)]
    assert listed(steps[:UNDO_ROWS]) == tuple(steps[:UNDO_ROWS])
    assert listed(steps) == (*steps[:UNDO_ROWS], "… and 2 more")


def test_rule_23_terminate_needs_no_code_to_list_what_it_leaves_undone() -> None:
    commit = transition.terminated(ORDER, ANNA, LIFE, now=NOW)
    failure = Failure.decode(commit.after.error or b"")
    assert (failure.undone, failure.owed) == (("mail:1",), ("ship:.2:1", "charge:1"))
    assert failure.message == "terminated by anna because: enough; not undone: ship:.2:1, charge:1"
    told = json.decode(commit.events[-1].payload or b"")
    assert told == {"who": "anna", "why": "enough", "origin": "cli", "not_undone": ["ship:.2:1", "charge:1"]}


def test_terminate_says_nothing_of_undoing_where_there_is_nothing_to_undo() -> None:
    commit = transition.terminated(ORDER, ANNA, history("did look:1"), now=NOW)
    assert commit.events[-1].payload == ANNA.encode()
    assert b"undone" not in (commit.after.error or b"")


def test_a_deadline_lists_what_it_leaves_undone() -> None:
    failure = Failure.decode(transition.expired(ORDER, LIFE, now=NOW).after.error or b"")
    assert failure.owed == ("ship:.2:1", "charge:1")


FAILED = replace(ORDER, status=Status.FAILED, due_at=None, events=9)


@pytest.mark.parametrize(
    "facts",
    [
        ("owes charge:1", "did charge:1", "failed ship:1", "undid charge:1"),
        ("owes charge:1", "did charge:1", "undid charge:1"),
    ],
)
def test_what_was_undone_after_the_failure_is_not_retried_as_if_it_still_held(facts: tuple[str, ...]) -> None:
    with pytest.raises(IllegalMove, match="compensated: charge:1"):
        run.retried(FAILED, history(*facts), ANNA, now=NOW)


def test_a_retry_keeps_what_was_undone_before_the_failure_and_what_is_owed() -> None:
    facts = ("owes charge:1", "did charge:1", "undid charge:1", "owes pay:1", "did pay:1", "failed ship:1")
    commit = run.retried(FAILED, history(*facts), ANNA, now=NOW)
    assert owed(commit.events) == ["pay:1"]
    assert undone(commit.events) == ["charge:1"]


def test_a_process_that_ran_out_of_time_while_it_was_undoing_goes_on_with_that() -> None:
    facts = ("owes charge:1", "did charge:1", "owes pay:1", "did pay:1", "failed ship:1", "undid pay:1", "expired")
    commit = run.retried(FAILED, history(*facts), ANNA, now=NOW)
    assert (owed(commit.events), undone(commit.events)) == (["charge:1"], ["pay:1"])
    assert any(event.type is EventType.STEP_FAILED for event in commit.events)
