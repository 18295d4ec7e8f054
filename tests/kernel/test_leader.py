"""The rules of leaders: who wins, for how long, and that each has a higher term than all before it."""

from __future__ import annotations

from msgspec.structs import replace

from perdure import limits
from perdure.clock import SECOND, microseconds
from perdure.kernel.leader import Leader, called_off, renewed, vacated, won

NOON = 1_780_000_000 * SECOND
LEASE = 15 * SECOND


def led(at: int = NOON) -> Leader:
    row = won(Leader("import"), "one", "here:1", at, LEASE)
    assert row is not None
    return row


def test_whoever_asks_first_leads_for_one_lease_and_nobody_else_until_then() -> None:
    row = led()
    assert (row.version, row.term, row.candidate, row.program) == (1, 1, "one", "here:1")
    assert (row.since, row.until) == (NOON, NOON + LEASE)
    assert won(row, "two", "here:2", row.until - 1, LEASE) is None
    second = won(row, "two", "here:2", row.until, LEASE)
    assert second is not None
    assert (second.version, second.term, second.candidate, second.since) == (2, 2, "two", row.until)


def test_a_renewal_lengthens_the_lease_and_keeps_the_term() -> None:
    longer = renewed(led(), NOON + 5 * SECOND, LEASE)
    assert (longer.version, longer.term, longer.since, longer.until) == (2, 1, NOON, NOON + 20 * SECOND)


def test_a_leader_that_has_ended_its_work_leaves_the_place_at_once_and_its_term_stays_behind() -> None:
    free = vacated(led(), NOON + SECOND)
    assert not free.leads(NOON + SECOND)
    following = won(free, "two", "here:2", NOON + SECOND, LEASE)
    assert following is not None and following.term == 2
    assert vacated(led(), NOON + 2 * LEASE).until == NOON + LEASE, "what is over is not made longer"


def test_a_leader_that_was_asked_to_stop_still_leads_and_the_next_one_was_not_asked() -> None:
    row = called_off(led())
    assert row.released and row.leads(NOON + 1) and row.version == 2
    following = won(vacated(row, NOON + 1), "two", "here:2", NOON + 1, LEASE)
    assert following is not None and not following.released


def test_an_end_that_lies_further_ahead_than_any_lease_is_not_believed() -> None:
    longest = microseconds(limits.LEADER_LONGEST_SECONDS)
    assert replace(led(), until=NOON + longest).leads(NOON)
    assert won(replace(led(), until=NOON + longest + 1), "two", "here:2", NOON, LEASE) is not None
