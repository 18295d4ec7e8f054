"""Removal and the release of a key, as the kernel decides them."""

from __future__ import annotations

import pytest
from msgspec import json

from perdure.errors import IllegalMove
from perdure.kernel import removal, run
from perdure.kernel.commit import Removal
from perdure.kernel.message import MessageType
from perdure.kernel.process import FINAL, Status
from tests.kernel.test_commands import ANNA, CANCELLED, HISTORY, NOW, E, begun, event, lived, process


@pytest.mark.parametrize("status", [status for status in Status if status not in FINAL])
def test_a_forced_removal_ends_what_has_not_ended_in_the_same_commit(status: Status) -> None:
    past = (*lived(status), begun(len(lived(status)) + 1, b"a" * 16, "open"))
    row = process(status, history=past, parent=b"q" * 16)
    commit = removal.removed(row, ANNA, past, now=NOW, force=True)
    assert (commit.removes, commit.after.status, commit.after.token) == (Removal.PROCESS, CANCELLED, 4)
    assert [(sent.process, sent.type) for sent in commit.sends] == [
        (b"q" * 16, MessageType.CANCELLED),
        (b"a" * 16, MessageType.CANCEL),
    ]


def test_a_key_is_released_once_and_retry_still_knows_why_the_process_has_failed() -> None:
    ended = (*HISTORY[:2], event(3, E.EXPIRED, payload=b"{}"))
    commit = removal.key_released(process(Status.FAILED, history=ended, key="A-1"), ANNA, now=NOW)
    assert json.decode(commit.events[0].payload or b"")["key"] == "A-1"
    past = (*ended, *commit.events)
    kept = run.retried(commit.after, past, ANNA, now=NOW)
    assert [one.type for one in kept.events] == [E.RUN_OPENED, E.STEP_COMPLETED, E.ATTEMPT_FAILED]
    with pytest.raises(IllegalMove, match="has none"):
        removal.key_released(commit.after, ANNA, now=NOW)
