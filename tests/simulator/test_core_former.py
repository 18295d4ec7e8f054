"""Former runs are pruned behind processes that go on for ever, and nothing that is still needed goes with them."""

from __future__ import annotations

from tests.simulator.core_former import tenancies, tenancy
from tests.simulator.form import play_until


def test_processes_go_on_exactly_while_their_former_runs_are_pruned_in_any_weather() -> None:
    play_until("a former run was pruned", 30, tenancies, [tenancy], range(15), some=5)
