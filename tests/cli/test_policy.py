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


def test_whether_a_step_keeps_its_arguments_is_shown_with_what_sets_it(terminal: Terminal, shop: str) -> None:
    assert terminal.bare("policy", "explain", "parcel_order.*.weigh_parcel", shop).has("keep_arguments false default")
    Path("perdure.toml").write_text('[policies."*.*.weigh_parcel"]\nkeep_arguments = true\n')
    said = terminal.bare("policy", "explain", "parcel_order.*.weigh_parcel", shop)
    assert said.has("keep_arguments true *.*.weigh_parcel in perdure.toml")
    Path("perdure.toml").write_text('[policies."*.*.weigh_parcel"]\nkeep_arguments = 1\n')
    said = terminal.bare("policy", "explain", "parcel_order.*.weigh_parcel", shop)
    assert (said.code, "keep_arguments=1) makes no sense: give True or False" in said.err) == (2, True), said.err


def test_a_name_that_is_none_and_a_key_that_names_nothing_are_refused_with_what_is_meant(
    terminal: Terminal, shop: str
) -> None:
    said = terminal.bare("policy", "explain", "parcel_order.*.weigh", shop)
    assert (said.code, "'parcel_order.*.weigh_parcel'" in said.err.partition("Did you mean ")[2]) == (2, True)
    Path("perdure.toml").write_text('[policies."parcel_order.*.weigh"]\ntotal = 60\n')
    said = terminal.bare("policy", "explain", "parcel_order.*.weigh_parcel", shop)
    assert (said.code, "'parcel_order.*.weigh' of perdure.toml names no workflow" in said.err) == (2, True)


FLOW = """
from perdure import Retry, flow, step


@step(retry=Retry.NONE)
async def ask_the_post(id: str) -> None:
    pass


class Dispatch(flow.Flow, revival_delay=5):
    asking = flow.State()
    sending = flow.State(at_most_once=True, timeout=90)
    sent = flow.State(terminal=True)

    dispatch = flow.Stretch(asking, sent, timeout=200)

    @flow.init
    def begun(self) -> None:
        pass

    @flow.event
    def answered(self) -> None:
        pass

    @flow.event
    def gone(self) -> None:
        pass

    @flow.request(timeout=60, default=answered)
    async def ask(self, id: str) -> None:
        await ask_the_post(id)

    @flow.action
    async def send(self) -> flow.Happened:
        await ask_the_post("send")
        return self.gone()

    behaviour = flow.table(
        flow.on(begun).to(asking).do(ask),
        flow.any_of(answered, ask.timed_out, in_=asking).to(sending).do(send),
        flow.on(gone, in_=sending).to(sent),
        flow.any_of(sending.timed_out, dispatch.timed_out).to(sent),
    )
"""


@pytest.fixture
def post(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The code of a flow, in the folder where commands run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dispatches.py").write_text(FLOW)
    return "dispatches.py"


def test_a_request_of_a_flow_is_shown_with_the_key_and_the_source_of_each_property(
    terminal: Terminal, post: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("perdure.toml").write_text('[policies."*.*.ask"]\ntimeout = 10\n[policies."Dispatch.*.*"]\nattempts = 4\n')
    monkeypatch.setenv("PERDURE_POLICIES", '{"Dispatch.asking.ask": {"first": 3, "offsets": true}}')
    said = terminal.bare("policy", "explain", "Dispatch.asking.ask", post)
    assert said.code == 0, said.err
    for line in (
        "timeout 10 *.*.ask in perdure.toml", "at_most_once false default", "revival_delay 5 the flow",
        "attempts 4 Dispatch.*.* in perdure.toml", "first 3 Dispatch.asking.ask in PERDURE_POLICIES",
        "offsets true Dispatch.asking.ask in PERDURE_POLICIES", "jitter 0.2 default",
    ):  # fmt: skip
        assert said.has(line), line
    assert not said.has("budget")
    Path("perdure.toml").unlink()
    assert terminal.bare("policy", "explain", "Dispatch.asking.ask", post).has("timeout 60 the request")


def test_an_action_and_a_step_in_a_state_are_shown_with_what_the_state_says(terminal: Terminal, post: str) -> None:
    Path("perdure.toml").write_text('[policies."Dispatch.sending.*"]\nrevival_delay = 0\nattempts = 4\n')
    action = terminal.bare("policy", "explain", "Dispatch.sending.send", post)
    assert action.has("timeout none default") and action.has("at_most_once true the flow")
    assert action.has("revival_delay 0 Dispatch.sending.* in perdure.toml")
    assert action.has("keep_arguments false default")
    step = terminal.bare("policy", "explain", "Dispatch.sending.ask_the_post", post)
    assert step.has("at_most_once true the flow") and step.has("attempts 1 at_most_once")
    elsewhere = terminal.bare("policy", "explain", "Dispatch.asking.ask_the_post", post)
    assert elsewhere.has("at_most_once false default") and elsewhere.has("attempts 1 the step")
    wrong = terminal.bare("policy", "explain", "Dispatch.asking.send", post)
    assert (wrong.code, "'Dispatch.asking.send' is no step" in wrong.err) == (2, True), wrong.err


def test_the_times_of_a_state_and_of_a_stretch_are_shown_with_what_sets_them(terminal: Terminal, post: str) -> None:
    assert terminal.bare("policy", "explain", "Dispatch.sending.sending", post).has("timeout 90 the state")
    assert terminal.bare("policy", "explain", "Dispatch.asking.dispatch", post).has("timeout 200 the stretch")
    Path("perdure.toml").write_text('[policies."Dispatch.*.dispatch"]\ntimeout = 40\n')
    said = terminal.bare("policy", "explain", "Dispatch.asking.dispatch", post)
    assert said.has("timeout 40 Dispatch.*.dispatch in perdure.toml"), said.err
    wrong = terminal.bare("policy", "explain", "Dispatch.asking.asking", post)
    assert (wrong.code, "'Dispatch.asking.asking' is no step" in wrong.err) == (2, True), wrong.err
