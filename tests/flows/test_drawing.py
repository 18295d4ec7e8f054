"""What is made of a definition: the diagram, the table, and a skeleton of tests that can be filled in and run."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from tests.flows.test_requests import Inquiry
from tests.flows.test_times import Journey
from tests.flows.transfer import Transfer

DIAGRAM = """\
stateDiagram-v2
    [*] --> reserving: begun / reserve
    reserving --> waiting: acknowledged
    reserving --> clearing: reserved / clear
    waiting --> clearing: reserved / clear
    any_state --> rejected: refused or closed or reserve.timed_out
    clearing --> settled: cleared and noted
    waiting --> expired: waiting.timed_out
    settled --> [*]
    rejected --> [*]
    expired --> [*]
"""


def test_the_diagram_has_every_row_and_every_end() -> None:
    assert Transfer.diagram() == DIAGRAM
    assert "    any_state --> any_state: travelling.timed_out / warn\n" in Journey.diagram()


def test_the_table_has_the_rows_the_states_the_answers_and_the_stretches() -> None:
    table = Transfer.table()
    assert table.startswith("| in state | on | to | do |\n|---|---|---|---|\n| | begun | reserving | reserve |\n")
    for line in (
        "| reserving, waiting | reserved | clearing | clear |",
        "| any | refused or closed or reserve.timed_out | rejected | |",
        "| waiting | PENDING | 100 s | |",
        "| settled | ACCEPTED | | completed |",
        "| rejected | REJECTED | | failed |",
        "| reserve | PDNG | acknowledged | no |",
        "| reserve | RJCT/AC04 | closed | yes |",
        "| reserve | any other | refused | yes |",
    ):
        assert f"{line}\n" in table
    assert "| stuck | hurried | (stays) | stop escalate |\n" in Inquiry.table()
    assert "From road to town within 100 s, else travelling.timed_out.\n" in Journey.table()


def filled(text: str, *gaps: tuple[str, str]) -> dict[str, Callable[[], Coroutine[Any, Any, None]]]:
    """The tests of a skeleton by name, once its gaps are filled in."""
    for gap, value in gaps:
        assert gap in text
        text = text.replace(gap, value)
    assert "..." not in text.partition("\n\n")[2]
    found: dict[str, Any] = {}
    exec(compile(text, "scenario", "exec"), found)  # noqa: S102  it is Python text, and the tests in it shall run
    return {name: one for name, one in found.items() if name.startswith("test_")}


async def test_the_skeleton_of_tests_runs_once_it_is_filled_in() -> None:
    tests = filled(
        Transfer.scenario(),
        ("Transfer.begun, ...", 'Transfer.begun, "Ann"'),
        ('"ACCP", value=...', '"ACCP", value="R-17"'),
        ("Transfer.noted, ...", 'Transfer.noted, "thanks"'),
        ("value=...", "value=None"),
        ("..., ", '"RJCT", '),
    )
    assert [*tests] == [f"test_a_transfer_that_comes_to_{end}" for end in ("settled", "rejected", "expired")]
    await tests["test_a_transfer_that_comes_to_settled"]()
    await tests["test_a_transfer_that_comes_to_rejected"]()


async def test_the_skeleton_of_a_flow_with_timeouts_waits_for_them() -> None:
    tests = filled(Journey.scenario())
    assert [*tests] == ["test_a_journey_that_comes_to_town", "test_a_journey_that_comes_to_lost"]
    for one in tests.values():
        await one()
