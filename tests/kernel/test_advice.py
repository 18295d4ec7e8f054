"""Which command helps is said where a process is shown, by how it stands then; no record has it."""

from __future__ import annotations

import pytest

from perdure.errors import HistoryMisfit
from perdure.kernel.advice import advice
from perdure.kernel.diagnosis import next_mover
from perdure.kernel.failure import Failure
from perdure.kernel.process import Process, Status


@pytest.mark.parametrize(
    ("status", "type", "told"),
    [
        (Status.BROKEN, "BadRecord", "fix the cause, then `perdure retry`; or `perdure terminate`"),
        (
            Status.BROKEN,
            "HistoryMisfit",
            "bring back code that fits the history, then `perdure retry`; or `perdure terminate`",
        ),
        (Status.BROKEN, "Hung", "make the blocking call a sync step, which runs in a thread, then `perdure retry`; or"),
        (Status.HELD, "Held", "`perdure resume` lets it go on; `perdure terminate` ends it"),
        (Status.HELD, "HistoryTooLong", "have it continue as new, or let it go on: `perdure retry`"),
        (Status.FAILED, "ValueError", "`perdure retry` goes on from its last good event"),
        (Status.FAILED, "StepOutcomeUnknown", "find out whether it was done; then `perdure set-result`"),
        (Status.COMPLETED, "", ""),
    ],
)
def test_advice_fits_the_status_and_the_error(status: Status, type: str, told: str) -> None:
    assert advice(status, type).startswith(told)


def test_commands_name_the_process_where_it_is_known() -> None:
    assert advice(Status.BROKEN, "", "A-17") == "fix the cause, then `perdure retry A-17`; or `perdure terminate A-17`"


def test_the_next_mover_of_a_parked_process_is_a_person_who_is_told_what_to_do() -> None:
    error = Failure.of(HistoryMisfit("a result of step 'a'", "asked for step 'b'"))
    assert "perdure" not in error.message
    row = Process(b"p" * 16, "order", None, b"[]", Status.BROKEN, error=error.encode())
    mover = next_mover(row, 0, {})
    assert mover.who == "person"
    assert mover.text == (
        "it is broken: the history recorded a result of step 'a', but the code asked for step 'b'; bring back code "
        "that fits the history, then `perdure retry`; or `perdure terminate`"
    )
