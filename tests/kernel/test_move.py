"""Moves: what one transaction may make of a process, and what it may not; each law is broken once here."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from perdure.kernel.event import Event, EventType
from perdure.kernel.move import LAWS, unsound_move
from perdure.kernel.names import DEBOUNCED
from perdure.kernel.process import Process, Status

WORKER, OTHER = b"w" * 16, b"o" * 16
BEFORE = Process(
    b"p" * 16, "order", "A-17", b"[]", version=3, token=2, owner=WORKER, due_at=100, events=4, inbox=2, seen=1
)
RESULT = Event(5, 3, EventType.STEP_COMPLETED, 90, "1", "charge", token=2, version=4)
ENDED = replace(BEFORE, status=Status.COMPLETED, owner=None, due_at=None, result=b"1")


def laws(after: Process, *fresh: Event, before: Process | None = BEFORE) -> set[str]:
    return {finding.law for finding in unsound_move(before, after, fresh, 100)}


@pytest.mark.parametrize(
    ("after", "fresh"),
    [
        (replace(BEFORE, version=4, events=5), (RESULT,)),
        (replace(BEFORE, token=3, owner=OTHER), ()),
        (replace(BEFORE, due_at=200), ()),
        (replace(BEFORE, inbox=3), ()),
        (replace(BEFORE, version=4, owner=None), ()),
        (replace(BEFORE, version=4, run=2, events=0, token=3, owner=None, seen=0), ()),
    ],
)
def test_what_owners_takers_senders_and_new_runs_do_is_sound(after: Process, fresh: tuple[Event, ...]) -> None:
    assert laws(after, *fresh) == set()
    assert laws(after, before=None) == set()


@pytest.mark.parametrize(
    ("law", "changes", "fresh"),
    [
        ("one_owner", {"token": 1}, ()),
        ("one_owner", {"owner": OTHER}, ()),
        ("one_owner", {"version": 4, "events": 5}, (replace(RESULT, token=1),)),
        ("one_transaction", {"version": 5}, ()),
        ("one_transaction", {"events": 5}, (RESULT,)),
        ("one_transaction", {"status": Status.HELD, "owner": None}, ()),
        ("one_transaction", {"key": "B"}, ()),
        ("history_is_gapless", {"version": 4, "events": 6}, (RESULT,)),
        ("history_is_gapless", {"version": 4, "run": 3}, ()),
        ("accepted_is_kept", {"inbox": 1}, ()),
        ("accepted_is_kept", {"seen": 0}, ()),
        ("finished_is_final", {"version": 4, "run": 2, "status": Status.COMPLETED}, ()),
    ],
)
def test_a_transaction_that_breaks_a_law_is_found(law: str, changes: dict[str, Any], fresh: tuple[Event, ...]) -> None:
    assert law in laws(replace(BEFORE, **changes), *fresh)


def test_a_debounced_process_gives_its_key_back_when_it_begins_whatever_has_happened_to_its_workers() -> None:
    waiting = replace(BEFORE, key=f"{DEBOUNCED}A-17")
    revived = Event(5, 0, EventType.REVIVED, 90, token=2, version=4)
    released = Event(6, 0, EventType.KEY_RELEASED, 90, token=2, version=4)
    begun = replace(waiting, key=None, version=4, owner=None, due_at=90, events=6)
    assert laws(begun, revived, released, before=waiting) == set()
    assert laws(begun, replace(RESULT, token=2), released, before=waiting) == {"one_transaction"}
    assert laws(begun, revived, released, before=BEFORE) == {"one_transaction"}


def test_an_ended_process_is_changed_only_by_a_new_run() -> None:
    again = replace(ENDED, status=Status.RUNNING, version=4, due_at=100, result=None)
    assert "finished_is_final" in laws(again, before=ENDED)
    assert "finished_is_final" in laws(replace(ENDED, result=b"2"), before=ENDED)
    assert laws(replace(ENDED, inbox=3), before=ENDED) == set()
    assert laws(replace(again, run=2, events=0, seen=0), before=ENDED) == set()


def test_held_and_broken_processes_move_only_as_their_status_allows() -> None:
    held = replace(BEFORE, status=Status.HELD, owner=None, reminder=True)
    completed = replace(held, status=Status.COMPLETED, version=4, due_at=None, reminder=False, result=b"1")
    assert laws(completed, before=held) == {"finished_is_final"}


def test_a_new_run_is_held_from_the_first_only_if_the_process_was_held() -> None:
    held = replace(BEFORE, status=Status.HELD, owner=None, reminder=True)
    in_its_new_run = replace(held, version=4, run=2, events=0, seen=0)
    assert laws(in_its_new_run, before=held) == set()
    assert laws(in_its_new_run) == {"finished_is_final"}


def test_every_law_about_moves_says_which_law_it_is() -> None:
    assert all((law.__doc__ or "").startswith("Law ") for law in LAWS)
