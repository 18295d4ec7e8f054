"""Cuts around COMMIT, the short form; ``make cut`` makes thousands of them."""

from __future__ import annotations

import pytest

from perdure.testing.postgres import Server
from tests.cut.proxy import Cut
from tests.cut.session import ABSENT, APPLIED, session

pytestmark = [pytest.mark.kill, pytest.mark.timeout(120)]


async def test_every_batch_cut_around_its_commit_is_found_applied_or_sent_again_and_counts_once(
    shared_server: Server,
) -> None:
    tally = await session(shared_server, wanted=80, seed=7)
    assert tally.batches == 80
    assert {cut for _, cut in tally.cuts} == set(Cut)
    assert tally.resolved[APPLIED] > 5
    assert tally.resolved[ABSENT] > 5
