"""Rule 5: a line that breaks around a COMMIT leaves the outcome unknown; sending the same again settles it, once."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from perdure.errors import StoreUnavailable
from perdure.kernel.commit import Start, StartVerdict, Verdict
from perdure.kernel.message import SendVerdict
from perdure.store.base import Overdue, Search
from perdure.store.postgres.store import PostgresStore
from perdure.testing.conformance import Trial
from perdure.testing.conformance.trial import going_on
from tests.store.ground_postgres import PostgresGround
from tests.store.postgres.proxy import Fault, Proxy

CUTS = pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.CUT_AFTER])


@pytest.fixture
async def far(postgres: PostgresGround, proxy: Proxy) -> AsyncIterator[Trial]:
    """A store by way of a line that can be cut, with the suite's short words."""
    store = PostgresStore(proxy.url)
    await store.open()
    yield Trial(postgres, store)
    await store.close()


@CUTS
async def test_a_commit_sent_again_over_a_new_line_is_applied_once(
    trial: Trial, far: Trial, proxy: Proxy, fault: Fault
) -> None:
    worker = await trial.worker()
    rows = [await trial.owned(worker) for _ in range(3)]
    commits = [going_on(row, steps=2) for row in rows]
    proxy.fault, proxy.mark = fault, rows[0].id
    with pytest.raises(StoreUnavailable):
        await far.store.commit(commits)
    there = [(await trial.row(row.id)).version for row in rows]
    assert there == ([1, 1, 1] if fault is Fault.CUT_AFTER else [0, 0, 0])
    answers = await far.store.commit(commits)
    assert {answer.verdict for answer in answers} == {Verdict.APPLIED}
    wholes = [await trial.whole(row.id) for row in rows]
    assert [(whole.process.version, len(whole.events)) for whole in wholes] == [(1, 2)] * 3


@CUTS
async def test_a_commit_sent_again_after_a_takeover_says_what_became_of_it(
    trial: Trial, far: Trial, proxy: Proxy, fault: Fault
) -> None:
    first, second = await trial.worker(), await trial.worker("there")
    row = await trial.owned(first)
    commit = going_on(row)
    proxy.fault, proxy.mark = fault, row.id
    with pytest.raises(StoreUnavailable):
        await far.store.commit([commit])
    await trial.time.advance(15)
    assert len((await trial.claim(second)).claimed) == 1
    [answer] = await far.store.commit([commit])
    assert answer.verdict is (Verdict.APPLIED if fault is Fault.CUT_AFTER else Verdict.REFUSED)
    assert len((await trial.whole(row.id)).events) == (1 if fault is Fault.CUT_AFTER else 0)


@CUTS
async def test_starts_and_sends_sent_again_are_answered_as_the_first_time(
    trial: Trial, far: Trial, proxy: Proxy, fault: Fault
) -> None:
    starts = [Start(trial.process(key=f"order/{number}")) for number in range(3)]
    proxy.fault, proxy.mark = fault, starts[1].process.id
    with pytest.raises(StoreUnavailable):
        await far.store.start(starts)
    answers = await far.store.start(starts)
    assert {answer.verdict for answer in answers} == {StartVerdict.CREATED}
    assert len(await trial.stored()) == 3
    messages = [trial.signal(start.process.id) for start in starts]
    proxy.fault, proxy.mark = fault, messages[2].id
    with pytest.raises(StoreUnavailable):
        await far.store.send(messages)
    sent = await far.store.send(messages)
    assert [(answer.verdict, answer.number) for answer in sent] == [(SendVerdict.DELIVERED, 1)] * 3
    assert {row.inbox for row in await trial.stored()} == {1}


async def test_rows_of_a_claim_whose_answer_was_lost_are_found_by_their_owner(
    trial: Trial, far: Trial, proxy: Proxy
) -> None:
    worker = await trial.worker()
    row = await trial.started()
    proxy.fault, proxy.mark = Fault.CUT_AFTER, worker
    with pytest.raises(StoreUnavailable):
        await far.claim(worker)
    [mine] = await far.store.search(Search(overdue=Overdue.OWNED, owner=worker))
    assert (mine.id, mine.owner, mine.token) == (row.id, worker, 1)
