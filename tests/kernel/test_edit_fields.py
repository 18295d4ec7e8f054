"""An edit of a machine's fields is a command: it fences off whoever still writes, and leaves the status as it is."""

from __future__ import annotations

import pytest
from msgspec import Raw, json
from msgspec.structs import replace

from perdure.errors import IllegalMove
from perdure.kernel.checkpoint import Checkpoint, parted, written
from perdure.kernel.edit import with_fields
from perdure.kernel.event import EventType
from perdure.kernel.process import Process, Status
from perdure.kernel.transition import Sender

ANN = Sender("ann", "the auditor", "cli")
STOOD = Checkpoint(2, turn=5, method=4, due=99, form=3, context='{"tenant":"acme"}')
HELD = Process(
    bytes(16), "account", None, b"[]", Status.HELD, run=2, version=7, token=3, due_at=50, reminder=True, events=9,
    state=written(STOOD, b'{"owner":"Ann","balance":1}'),
)  # fmt: skip


def test_an_edit_fences_off_whoever_still_writes() -> None:
    commit = with_fields(HELD, {"balance": Raw(b"2")}, ANN, now=60)
    assert (commit.token, commit.version) == (3, 7)
    assert (commit.after.token, commit.after.version, commit.after.events) == (4, 8, 10)


def test_an_edit_changes_the_fields_and_nothing_else() -> None:
    commit = with_fields(HELD, {"balance": Raw(b"2")}, ANN, now=60)
    checkpoint, fields = parted(commit.after.state or b"")
    assert (checkpoint, json.decode(fields)) == (STOOD, {"owner": "Ann", "balance": 2})
    same = replace(commit.after, token=3, version=7, events=9, state=HELD.state)
    assert same == HELD


def test_an_edit_is_one_event_with_who_and_why_and_what_it_was() -> None:
    (event,) = with_fields(HELD, {"balance": Raw(b"2"), "limit": Raw(b"9")}, ANN, now=60).events
    assert (event.type, event.number, event.turn, event.at) == (EventType.FIELDS_EDITED, 10, 0, 60)
    assert json.decode(event.payload or b"") == {
        "who": "ann", "why": "the auditor", "origin": "cli",
        "fields": {"balance": 2, "limit": 9}, "was": {"balance": 1},
    }  # fmt: skip


@pytest.mark.parametrize("status", [status for status in Status if status not in (Status.HELD, Status.BROKEN)])
def test_a_machine_that_a_method_could_change_is_not_edited(status: Status) -> None:
    with pytest.raises(IllegalMove):
        with_fields(replace(HELD, status=status), {"balance": Raw(b"2")}, ANN, now=60)
