"""Event streams in virtual time, whatever is killed, lost or late."""

from __future__ import annotations

import pytest

from perdure.testing.simulator import simulate
from tests.simulator.core_streams import audit, page
from tests.simulator.form import seeds


@pytest.mark.parametrize("seed", seeds(2, 16))
def test_a_sink_gets_what_the_histories_say_in_order_in_any_weather(seed: int) -> None:
    simulate(audit, seed, workflows=[page]).check()


@pytest.mark.long
def test_a_history_with_a_stream_is_repeated_to_the_byte() -> None:
    one = simulate(audit, 2, workflows=[page]).check()
    assert one.digest() == simulate(audit, 2, workflows=[page]).digest()
