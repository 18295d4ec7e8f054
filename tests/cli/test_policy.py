"""`perdure policy explain`: every property of a step's policy, and what sets it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.terminal import Terminal

CODE = """
from perdure import Retry, step, workflow


@step(timeout=30, retry=Retry(attempts=4))
async def weigh_parcel(grams: int) -> int:
    return grams


@workflow
async def parcel_order(grams: int) -> int:
    return await weigh_parcel(grams)
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The code of a shop, in the folder where commands run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "weighed_parcels.py").write_text(CODE)
    return "weighed_parcels.py"


def test_each_property_is_shown_with_what_sets_it(
    terminal: Terminal, shop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("perdure.toml").write_text('[policies."*.*.weigh_parcel"]\ntotal = 60\n[policies."*.*.*"]\ntimeout = 5\n')
    monkeypatch.setenv("PERDURE_POLICIES", '{"parcel_order.*.weigh_parcel": {"backoffs": [20, 40]}}')
    said = terminal.bare("policy", "explain", "parcel_order.*.weigh_parcel", shop)
    assert said.code == 0, said.err
    assert said.has("timeout 30 the step")
    assert said.has("attempts 3 parcel_order.*.weigh_parcel in PERDURE_POLICIES")  # two back-offs
    assert said.has("total 60 *.*.weigh_parcel in perdure.toml")
    assert said.has("backoffs 20, 40 parcel_order.*.weigh_parcel in PERDURE_POLICIES")
    listed = terminal.bare("policy", "explain", "parcel_order.*.weigh_parcel", shop, "--json").json
    assert {"name": "total", "value": 60, "set_by": "*.*.weigh_parcel in perdure.toml"} in listed


def test_a_step_that_runs_at_most_once_has_one_attempt_whatever_else_is_set(
    terminal: Terminal, shop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("perdure.toml").write_text('[policies."*.*.weigh_parcel"]\nat_most_once = true\nattempts = 5\n')
    said = terminal.bare("policy", "explain", "parcel_order.*.weigh_parcel", shop)
    assert said.code == 0, said.err
    assert said.has("at_most_once true *.*.weigh_parcel in perdure.toml")
    assert said.has("attempts 1 at_most_once")


def test_a_name_that_is_none_and_a_key_that_names_nothing_are_refused_with_what_is_meant(
    terminal: Terminal, shop: str
) -> None:
    said = terminal.bare("policy", "explain", "parcel_order.*.weigh", shop)
    assert (said.code, "Did you mean 'parcel_order.*.weigh_parcel'" in said.err) == (2, True)
    Path("perdure.toml").write_text('[policies."parcel_order.*.weigh"]\ntotal = 60\n')
    said = terminal.bare("policy", "explain", "parcel_order.*.weigh_parcel", shop)
    assert (said.code, "'parcel_order.*.weigh' of perdure.toml names no workflow" in said.err) == (2, True)
