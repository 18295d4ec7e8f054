"""The laws as constraints of the schema: what breaks one cannot be written, by whatever hand."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest

from perdure.testing.conformance import Trial
from perdure.testing.conformance.trial import going_on, resting


async def _breaks(trial: Trial, raw: sqlite3.Connection, change: str, *values: Any) -> str:
    """The name of the constraint that refuses a change to the one row there is."""
    with pytest.raises(sqlite3.IntegrityError) as refusal:
        raw.execute(change, values)
    return str(refusal.value)


@pytest.mark.parametrize(
    ("law", "change"),
    [
        ("unfinished_is_due", "UPDATE process SET due_at = NULL"),
        ("unfinished_is_due", "UPDATE process SET owner = NULL, status = 4"),
        ("one_owner", "UPDATE process SET status = 4, due_at = NULL"),
        ("one_owner", "UPDATE process SET status = 3, reminder = 1"),
        ("one_owner", "UPDATE process SET reminder = 1"),
        ("one_owner", "UPDATE process SET owner = x'00'"),
        ("rest_has_a_reminder", "UPDATE process SET owner = NULL, status = 2"),
        ("status_is_known", "UPDATE process SET status = 0"),
        ("status_is_known", "UPDATE process SET status = 7, due_at = NULL"),
        ("history_is_gapless", "UPDATE event SET number = 0"),
        ("result_once", "UPDATE message SET consumed_by = 1"),
        ("FOREIGN KEY", "DELETE FROM process"),
    ],
)
async def test_a_row_that_breaks_a_law_cannot_be_written(
    trial: Trial, raw: sqlite3.Connection, law: str, change: str
) -> None:
    row = await trial.owned(await trial.worker())
    await trial.send(row.id)
    await trial.done(going_on(row))
    raw.execute("PRAGMA foreign_keys = ON")
    assert law in await _breaks(trial, raw, change)


async def test_law_nothing_unheard_a_sleeper_with_a_message_cannot_be_written(
    trial: Trial, raw: sqlite3.Connection
) -> None:
    row = await trial.owned(await trial.worker())
    await trial.done(resting(row, await trial.time.now() + 1))
    assert "nothing_unheard" in await _breaks(trial, raw, "UPDATE process SET inbox = 1")
    raw.execute("UPDATE process SET inbox = 1, reminder = 0")


async def test_law_result_once_one_number_has_one_event(trial: Trial, raw: sqlite3.Connection) -> None:
    row = await trial.done(going_on(await trial.owned(await trial.worker()), steps=2))
    assert "UNIQUE" in await _breaks(trial, raw, "UPDATE event SET number = 1 WHERE process = ?", row.id)


async def test_people_can_read_the_rows(trial: Trial, raw: sqlite3.Connection) -> None:
    row = await trial.done(going_on(await trial.owned(await trial.worker(), key="order/1")))
    [shown] = raw.execute("SELECT id, kind, key, status, due_at, input FROM process_shown").fetchall()
    assert shown == (row.id.hex(), "order", "order/1", "running", "2026-05-28 20:26:55", "[1]")
    [event] = raw.execute("SELECT process, number, name FROM event_shown").fetchall()
    assert event == (row.id.hex(), 1, "charge")
