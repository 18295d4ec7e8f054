"""A breaker: when its circuit opens, for how long, what a probe changes, and how long an attempt waits."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from perdure.clock import SECOND
from perdure.errors import DefinitionError, InvalidKey
from perdure.kernel.breaker import (
    CLOSED,
    HALF_OPEN,
    MOST,
    OPEN,
    Breaker,
    Circuit,
    Probed,
    Reported,
    cleared,
    forced_closed,
    forced_open,
)

BANK = Breaker("bank", failures=3, within=10, open_for=30, factor=2, longest=100)
NOW = 1_000_000 * SECOND
FRESH = Circuit("bank")


def failed(circuit: Circuit, at: float, number: int = 1, telling: int | None = None) -> Circuit:
    """The circuit after so many failures, so many seconds later."""
    return BANK.after(circuit, Reported(number, "ConnectionError", telling), NOW + round(at * SECOND))


def opened(at: float = 0.0) -> Circuit:
    """A circuit that has just opened for the first time."""
    return failed(FRESH, at, 3)


def half_open(at: float = 30.0) -> Circuit:
    """The same with a probe under way."""
    found = BANK.probing(opened(), NOW + round(at * SECOND))
    assert found is not None
    return found


# -- from closed to open ----------------------------------------------------------------------------------------------


def test_it_opens_with_the_last_of_so_many_failures_and_not_before() -> None:
    two = failed(failed(FRESH, 0), 9)
    assert (two.state, two.failures) == (CLOSED, 2)
    three = failed(two, 10)
    assert (three.state, three.since, three.until) == (OPEN, NOW + 10 * SECOND, NOW + 40 * SECOND)
    assert three.reason == "3 attempts have failed: ConnectionError"
    assert not failed(FRESH, 0, 2).until
    assert failed(FRESH, 0, 3).state == OPEN, "those of one report count together"


def test_failures_are_counted_from_the_first_one_on_for_so_long() -> None:
    two = failed(failed(FRESH, 0), 5)
    late = failed(two, 10.1)
    assert (late.state, late.failures, late.counted_from) == (CLOSED, 1, NOW + 10_100_000)
    assert failed(two, -20).failures == 1, "the clock was put back: the count begins anew"


def test_an_answer_that_tells_opens_it_at_once_for_as_long_as_it_says_and_no_longer_than_the_longest() -> None:
    assert failed(FRESH, 0, telling=0).until == NOW + 30 * SECOND
    assert failed(FRESH, 0, telling=70 * SECOND).until == NOW + 70 * SECOND
    assert failed(FRESH, 0, telling=5000 * SECOND).until == NOW + 100 * SECOND
    assert failed(FRESH, 0, telling=0).reason == "it cannot serve: ConnectionError"


def test_while_it_is_open_failures_of_attempts_that_had_begun_change_nothing_but_what_tells_puts_off() -> None:
    one = opened()
    assert failed(one, 1, 50) == one
    assert failed(one, 1, telling=0) == one
    assert failed(one, 1, telling=60 * SECOND).until == NOW + 61 * SECOND
    assert failed(one, 1, telling=2 * SECOND).until == one.until, "it is not shortened"
    assert failed(half_open(), 31, 50) == half_open()


def test_two_reports_become_one_with_the_longest_that_was_told() -> None:
    both = Reported(2, "TimeoutError", 5).and_then(Reported(1, "Unavailable", 7)).and_then(Reported(4, "OSError"))
    assert both == Reported(7, "OSError", 7)
    assert Reported(1, "OSError").and_then(Reported(1, "OSError")).telling is None


# -- half-open, and closed again --------------------------------------------------------------------------------------


def test_no_probe_begins_before_its_time_and_only_so_many_at_once() -> None:
    one = opened()
    assert BANK.shut(one, NOW + 30 * SECOND - 1) and BANK.probing(one, NOW + 30 * SECOND - 1) is None
    first = half_open()
    assert (first.state, first.probes, first.since, first.until) == (
        HALF_OPEN, 1, NOW + 30 * SECOND, NOW + 60 * SECOND,
    )  # fmt: skip
    assert BANK.shut(first, NOW + 31 * SECOND) and BANK.probing(first, NOW + 31 * SECOND) is None
    wide = Breaker("bank", open_for=30, probes=2)
    second = wide.probing(first, NOW + 31 * SECOND)
    assert second is not None and (second.probes, second.until) == (2, first.until)
    assert wide.probing(second, NOW + 32 * SECOND) is None


def test_a_probe_whose_worker_has_died_is_given_up_and_another_one_begins() -> None:
    again = BANK.probing(half_open(), NOW + 60 * SECOND)
    assert again is not None
    assert (again.state, again.probes, again.until) == (HALF_OPEN, 1, NOW + 90 * SECOND)
    assert again.since == NOW + 30 * SECOND, "it has been half-open all the time"


def test_it_closes_once_as_many_probes_were_served_as_it_lets_through() -> None:
    served = BANK.after(half_open(), Probed(True, 1), NOW + 31 * SECOND)
    assert (served.state, served.until, served.failures, served.since) == (CLOSED, None, 0, NOW + 31 * SECOND)
    wide = Breaker("bank", probes=2)
    one = wide.after(half_open(), Probed(True, 1), NOW + 31 * SECOND)
    assert (one.state, one.successes) == (HALF_OPEN, 1)
    assert wide.after(one, Probed(True, 1), NOW + 32 * SECOND).reason == "2 probes were served"


def test_a_probe_that_fails_opens_it_for_longer_each_time_up_to_the_longest() -> None:
    circuit, at, spans = opened(), NOW, []
    for _ in range(4):
        at = circuit.until or 0
        probing = BANK.probing(circuit, at)
        assert probing is not None
        circuit = BANK.after(probing, Probed(False, probing.opened, "OSError"), at)
        spans.append(((circuit.until or 0) - at) // SECOND)
    assert spans == [60, 100, 100, 100]
    assert circuit.reason == "a probe has failed: OSError"


def test_a_timer_that_grows_beyond_all_numbers_is_the_longest() -> None:
    steep = Breaker("bank", failures=1, open_for=1, factor=1000, longest=50)
    many = replace(half_open(), opened=999_999)
    circuit = steep.after(many, Probed(False, 999_999), NOW)
    assert (circuit.until, circuit.opened) == (NOW + 50 * SECOND, MOST)
    again = steep.after(replace(circuit, state=HALF_OPEN), Probed(False, MOST), NOW)
    assert again.opened == MOST, "the number fits into its column for ever"


def test_if_it_opens_again_soon_after_it_has_closed_it_goes_on_with_the_longer_time() -> None:
    closed = BANK.after(half_open(), Probed(True, 1), NOW + 31 * SECOND)
    soon, late = failed(closed, 35, 3), failed(closed, 42, 3)
    assert (soon.opened, soon.until) == (2, NOW + 95 * SECOND)
    assert (late.opened, late.until) == (1, NOW + 72 * SECOND)


def test_a_probe_of_another_time_closes_and_opens_nothing() -> None:
    later = replace(half_open(), opened=2)
    assert BANK.after(later, Probed(True, 1), NOW) == later
    assert BANK.after(later, Probed(False, 1, "OSError"), NOW) == later
    assert BANK.after(opened(), Probed(True, 1), NOW) == opened()
    assert BANK.after(FRESH, Probed(False, 1, "OSError"), NOW).failures == 1, "it counts as any other attempt"


# -- by hand, and what is not to be believed --------------------------------------------------------------------------


def test_what_a_person_has_set_is_changed_by_nothing_else() -> None:
    kept = forced_open(FRESH, NOW)
    assert BANK.shut(kept, NOW + 10**12) and BANK.probing(kept, NOW + 10**12) is None
    assert BANK.after(kept, Probed(True, 0), NOW) == kept
    closed = forced_closed(opened(), NOW)
    assert closed.closed and not BANK.shut(closed, NOW)
    assert failed(closed, 0, 99, telling=0) == closed
    again = cleared(closed, NOW)
    assert not again.forced and failed(again, 0, 3).state == OPEN
    assert again.opened == 0


def test_a_state_that_this_version_does_not_know_lets_attempts_through() -> None:
    strange = Circuit("bank", 7, "ajar", until=NOW + SECOND)
    assert strange.closed and not BANK.shut(strange, NOW)


def test_a_time_that_cannot_be_right_bars_nobody() -> None:
    for circuit in (opened(), half_open()):
        leapt = replace(circuit, until=NOW + 10**6 * SECOND)
        assert not BANK.shut(leapt, NOW)
        assert BANK.probing(leapt, NOW) is not None


@given(
    st.lists(
        st.tuples(
            st.integers(0, 120),
            st.one_of(
                st.builds(Reported, st.integers(1, 5), st.just("E"), st.one_of(st.none(), st.integers(0, 10**9))),
                st.builds(Probed, st.booleans(), st.integers(0, 4), st.just("E")),
                st.none(),
            ),
        ),
        max_size=40,
    )
)
def test_whatever_happens_it_never_bars_all_attempts_for_longer_than_the_longest(story: list[tuple[int, Any]]) -> None:
    circuit, now = FRESH, NOW
    for seconds, news in story:
        now += seconds * SECOND
        before = circuit
        circuit = (BANK.probing(circuit, now) or circuit) if news is None else BANK.after(circuit, news, now)
        assert circuit.state in (CLOSED, OPEN, HALF_OPEN)
        assert (before.state, circuit.state) != (OPEN, CLOSED), "only a probe closes it"
        assert (before.state, circuit.state) != (CLOSED, HALF_OPEN)
        assert circuit.probes <= BANK.probes and circuit.successes <= BANK.probes
        assert not BANK.shut(circuit, now + 100 * SECOND)


# -- how long an attempt waits ----------------------------------------------------------------------------------------


def test_the_first_that_waits_asks_at_the_time_and_the_others_one_after_another_behind_it() -> None:
    one = opened()
    assert BANK.wait(one, NOW, 0.9, first=True) == 30 * SECOND
    assert [BANK.wait(one, NOW, chance, first=False) // SECOND for chance in (0.0, 0.5, 0.999)] == [30, 45, 59]


def test_no_step_waits_longer_than_a_minute_before_it_looks_again() -> None:
    far = replace(opened(), until=NOW + 95 * SECOND)
    for circuit in (far, forced_open(FRESH, NOW)):
        for first in (True, False):
            assert [BANK.wait(circuit, NOW, chance, first=first) // SECOND for chance in (0.0, 1.0)] == [30, 60]


def test_the_longer_a_probe_takes_the_longer_the_others_wait() -> None:
    probing = half_open()
    waits = [BANK.wait(probing, NOW + (30 + age) * SECOND, 1.0, first=False) / SECOND for age in (0, 0.5, 8, 20)]
    assert waits == [1.0, 1.0, 8.0, 10.0]


# -- what is declared -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        {"failures": 0}, {"failures": 2.0}, {"failures": True}, {"probes": 0}, {"probes": "1"}, {"within": 0},
        {"within": "a minute"}, {"open_for": float("inf")}, {"open_for": -1}, {"factor": 0.5}, {"factor": float("nan")},
        {"longest": 29}, {"longest": 10**9}, {"within": None}, {"failures": 10**9},
    ],
)  # fmt: skip
def test_nonsense_is_refused_where_it_is_declared(given: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match=rf"^Breaker\('bank', {next(iter(given))}=.* Correct the declaration\.$"):
        Breaker("bank", **given)


def test_a_breaker_has_a_name_and_durations_may_be_timedeltas() -> None:
    with pytest.raises(InvalidKey, match="the name of a breaker is empty"):
        Breaker("")
    breaker = Breaker("bank", within=timedelta(minutes=2), open_for=timedelta(seconds=5), longest=timedelta(hours=1))
    assert (breaker.within, breaker.open_for, breaker.longest) == (120.0, 5.0, 3600.0)
    assert breaker == Breaker("bank", within=120, open_for=5, longest=3600)
