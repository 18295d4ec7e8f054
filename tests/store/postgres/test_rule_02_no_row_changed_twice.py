"""Rule 2: no statement changes one row twice; PostgreSQL would silently apply only one of the changes."""

from __future__ import annotations

import pytest

from perdure.errors import BadRecord
from perdure.testing.conformance import Trial
from perdure.testing.conformance.trial import going_on


async def test_a_hundred_messages_to_one_process_in_one_batch_all_count(trial: Trial) -> None:
    rows = [await trial.started() for _ in range(3)]
    batch = [trial.signal(rows[number % 3].id, str(number)) for number in range(300)]
    answers = await trial.store.send(batch)
    assert [answer.number for answer in answers] == [number // 3 + 1 for number in range(300)]
    assert [(await trial.row(row.id)).inbox for row in rows] == [100, 100, 100]
    kept = await trial.store.messages([(row.id, 0) for row in rows])
    assert sorted(int(message.name) for message in kept) == list(range(300))


async def test_two_commits_of_one_process_in_one_batch_are_refused_loudly_and_nothing_is_stored(trial: Trial) -> None:
    worker = await trial.worker()
    row, other = await trial.owned(worker), await trial.owned(worker)
    with pytest.raises(BadRecord):
        await trial.store.commit([going_on(row), going_on(other), going_on(row)])
    assert [(await trial.row(one.id)).version for one in (row, other)] == [0, 0]
    assert (await trial.whole(row.id)).events == ()
