"""Policies by name: what the program, its file and its environment set for steps, and where it takes effect."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from perdure import Policy, Retry, Search, WorkerOptions, saga, step, testing, workflow
from perdure.authoring.registry import Registry
from perdure.authoring.step_policies import StepPolicies
from perdure.clock import Computer
from perdure.errors import DefinitionError, ProcessFailed
from perdure.kernel.event import EventType
from perdure.kernel.policy import POLICIES, Policies
from perdure.kernel.retry import decode_attempt
from perdure.runtime.quarantine import Quarantine
from perdure.settings import CONFIG, policies
from perdure.telemetry import Telemetry
from tests.runtime.conftest import LIMIT, Open

tried: list[str] = []
at: list[datetime] = []
clock: list[testing.SkippingEngine] = []
NOW = Policy(first=0, jitter=0)


@pytest.fixture(autouse=True)
def _nothing_tried() -> None:
    for memory in (tried, at, clock):
        memory.clear()


@step
async def draws(who: str) -> None:
    tried.append(who)
    raise ConnectionError("no money")


@step(queue="teller")
async def draws_there(who: str) -> None:
    tried.append(who)
    raise ConnectionError("no money")


@workflow
async def miser() -> None:
    await draws("miser")


@workflow
async def spender() -> None:
    await draws("spender")


@workflow
async def patient_one() -> None:
    await draws.options(retry=Retry(attempts=2, first=0))("patient")


@workflow
async def visitor() -> None:
    await draws_there("visitor")


ALL = [miser, spender, patient_one, visitor]


async def failed(opened: Open, flow: object, **set: Policy) -> str:
    """Run it to its end, which is a failure."""
    engine, _ = await opened(work=True, workflows=ALL, options=WorkerOptions(policies=set))
    handle = await engine.start(flow)  # type: ignore[call-overload]
    with pytest.raises(ProcessFailed) as error:
        await handle.result(LIMIT)
    return str(error.value)


async def test_a_key_counts_for_the_steps_that_it_names_and_property_by_property(opened: Open) -> None:
    keys = {"*.*.draws": NOW, "miser.*.draws": Policy(attempts=5), "*.*.*": Policy(attempts=1)}
    assert "tried 5 times" in await failed(opened, miser, **keys)
    assert "tried once" in await failed(opened, spender, **keys)
    assert tried == ["miser"] * 5 + ["spender"]


async def test_a_first_wait_and_a_cap_from_keys_that_meet_at_a_step_fail_no_process(opened: Open) -> None:
    keys = {"*.*.*": Policy(cap=0, attempts=2), "*.*.draws": Policy(first=0.01)}
    assert "no money" in await failed(opened, miser, **keys)
    assert tried == ["miser"] * 2


async def test_what_one_place_of_the_code_sets_only_a_key_for_that_workflow_replaces(opened: Open) -> None:
    assert "tried 2 times" in await failed(opened, patient_one, **{"*.*.draws": Policy(attempts=4)})
    assert "tried 4 times" in await failed(opened, patient_one, **{"patient_one.*.draws": Policy(attempts=4)})


async def test_a_queued_step_has_the_policy_of_the_workflow_that_asks_for_it_at_whichever_worker(opened: Open) -> None:
    teller, _ = await opened(work=True, workflows=[], queues=["teller"])
    keys = {"visitor.*.draws_there": Policy(attempts=4, first=0)}
    engine, _ = await opened(work=True, workflows=ALL, queues=[], options=WorkerOptions(policies=keys))
    handle = await engine.start(visitor)
    with pytest.raises(ProcessFailed, match="tried 4 times"):
        await handle.result(LIMIT)
    assert teller.telemetry.counters["steps"] == 4
    [task] = await engine.list(Search(kind="@teller"))
    attempts = [event for event in await engine.process(task.id).history() if event.type is EventType.ATTEMPT_FAILED]
    planned = [decode_attempt(event.payload) for event in attempts]  # type: ignore[arg-type]
    assert all(one.retry_at - event.at < 1_000 for one, event in zip(planned, attempts, strict=True)), "at once"


@step
async def gives_back(what: str) -> None:
    tried.append(f"give back {what}")
    raise ConnectionError("nobody is there")


@step(undo=gives_back)
async def takes(what: str) -> str:
    return what


@workflow
async def borrower() -> None:
    async with saga():
        await takes("a book")
        raise ValueError("too many books")


async def test_the_undo_of_a_step_has_the_policy_of_its_own_name(opened: Open) -> None:
    keys = {"borrower.*.gives_back": Policy(attempts=3, first=0), "borrower.*.takes": Policy(attempts=7)}
    engine, _ = await opened(work=True, workflows=[borrower], options=WorkerOptions(policies=keys))
    handle = await engine.start(borrower)
    with pytest.raises(Exception, match="give"):
        await handle.result(LIMIT)
    assert tried == ["give back a book"] * 3


@step
async def sends() -> None:
    at.append(clock[0].now())
    raise ConnectionError("no answer")


def passed() -> list[float]:
    """After how many seconds something happened, from the first on; a busy machine takes a part of one for each."""
    return [float(round((one - at[0]).total_seconds())) for one in at]


@workflow
async def transfer() -> str:
    try:
        async with asyncio.timeout(10):
            await sends()
    except TimeoutError:
        at.append(clock[0].now())
        return "timeout"
    return "sent"


async def test_with_offsets_the_retries_come_at_3_and_6_and_the_timeout_at_10_to_the_millisecond() -> None:
    keys = {"transfer.*.sends": Policy(attempts=4, first=3, offsets=True, jitter=0)}
    async with testing.engine(workflows=[transfer], policies=keys, begins=datetime(2026, 6, 1, tzinfo=UTC)) as engine:
        clock.append(engine)
        handle = await engine.start(transfer)
        assert await handle.result(LIMIT) == "timeout"
        history = await handle.history()
    planned = [decode_attempt(event.payload) for event in history if event.type is EventType.ATTEMPT_FAILED]  # type: ignore[arg-type]
    assert [round((one.retry_at - one.since) / 1_000_000, 5) for one in planned] == [3.0, 6.0, 12.0]
    assert passed() == [0.0, 3.0, 6.0, 10.0]


async def test_a_list_of_back_offs_is_one_retry_for_each() -> None:
    keys = {"transfer.*.sends": Policy(backoffs=[1, 4], jitter=0)}
    async with testing.engine(workflows=[transfer], policies=keys) as engine:
        clock.append(engine)
        with pytest.raises(ProcessFailed, match="tried 3 times"):
            await (await engine.start(transfer)).result(LIMIT)
    assert passed() == [0.0, 1.0, 5.0]


@step
async def dawdles() -> None:
    tried.append("dawdles")
    await asyncio.sleep(3600)


@workflow
async def idler() -> None:
    await dawdles()


async def test_a_timeout_set_by_name_ends_an_attempt(opened: Open) -> None:
    keys = {"idler.*.*": Policy(timeout=0.05, attempts=2, first=0)}
    engine, _ = await opened(work=True, workflows=[idler], options=WorkerOptions(policies=keys))
    with pytest.raises(ProcessFailed, match=r"ran over its deadline after 0\.\d"):
        await (await engine.start(idler)).result(LIMIT)
    assert len(tried) == 2


async def test_a_policy_that_names_nothing_is_refused_when_the_worker_starts(opened: Open) -> None:
    with pytest.raises(DefinitionError, match=r"'miser\.\*\.drawz' of the program names no .* mean 'miser\.\*\.draws'"):
        await opened(work=True, workflows=ALL, options=WorkerOptions(policies={"miser.*.drawz": NOW}))
    await opened(options=WorkerOptions(policies={"miser.*.drawz": NOW}))  # a client runs no steps


def test_the_environment_counts_more_than_the_file_and_the_file_more_than_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "perdure.toml").write_text('[policies."*.*.draws"]\nattempts = 2\ncap = 9\ntotal = "none"\n')
    monkeypatch.setenv(POLICIES, '{"*.*.draws": {"cap": 8}}')
    found = policies({"*.*.draws": Policy(attempts=3, cap=7, total=5, timeout=6)}).of(("miser", "*", "draws"))
    assert {name: (one.value, one.source) for name, one in found.items()} == {
        "attempts": (2, "perdure.toml"), "total": (None, "perdure.toml"), "cap": (8, POLICIES),
        "timeout": (6, "the program"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[policies", "cannot be read"),
        ("policies = 3", "have no names"),
        ('[polices."*.*.draws"]', "polices"),
        ('[policies."*.*.draws"]\nattemps = 3', "sets attemps. A policy sets some of timeout, attempts"),
        ('[policies."*.*.draws"]\nattempts = 0', "attempts must be a whole number from 1"),
        ('[policies."*.*.draws"]\ntimeout = "soon"', "seconds or a timedelta"),
        ('[policies]\n"*.*.draws" = 3', "is 3"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str
) -> None:
    file = tmp_path / "other.toml"
    file.write_text(text)
    monkeypatch.setenv(CONFIG, str(file))
    with pytest.raises(DefinitionError, match=f"(?s)other.toml.*{says}"):
        policies()


def test_a_file_that_is_named_and_not_there_and_an_environment_that_is_not_json_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CONFIG, str(tmp_path / "none.toml"))
    with pytest.raises(DefinitionError, match="does not exist"):
        policies()
    monkeypatch.delenv(CONFIG)
    monkeypatch.setenv(POLICIES, "order.*.charge=5")
    with pytest.raises(DefinitionError, match="PERDURE_POLICIES is not JSON"):
        policies()


def test_a_quarantine_worker_is_told_what_the_program_itself_sets() -> None:
    mine = StepPolicies(Policies([("the program", {"*.*.draws": Policy(attempts=5, total=None)})]))
    quarantine = Quarantine("sqlite://:memory:", Registry(), WorkerOptions(), Computer(), Telemetry(), mine)
    assert quarantine.environment()[POLICIES] == '[{"*.*.draws":{"attempts":5,"total":"none"}}]'


def test_a_quarantine_worker_reads_them_as_they_count_also_where_a_later_source_does_not_fit_an_earlier_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sources = [{"*.*.draws": Policy(cap=10)}, {"*.*.draws": Policy(first=20), "other.*.draws": Policy(first=5)}]
    mine = Policies((f"source {number}", one) for number, one in enumerate(sources))
    quarantine = Quarantine(
        "sqlite://:memory:", Registry(), WorkerOptions(), Computer(), Telemetry(), StepPolicies(mine)
    )
    monkeypatch.setenv(POLICIES, quarantine.environment()[POLICIES])
    for flow, first, cap in (("any", 20, 20), ("other", 5, 10)):
        found = policies().of((flow, "*", "draws"))
        assert {name: one.value for name, one in found.items()} == {"first": first, "cap": cap}
