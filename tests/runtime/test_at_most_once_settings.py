"""Where steps run at most once: in queues, as undos, by a policy; and what cannot be had together with it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import pytest

from perdure.authoring.step import step
from perdure.authoring.workflow import workflow
from perdure.errors import DefinitionError, ProcessBroken, ProcessFailed, StepOutcomeUnknown
from perdure.kernel.policy import Policy
from perdure.kernel.retry import Retry
from perdure.runtime.options import WorkerOptions
from perdure.turns.saga import saga
from tests.runtime.conftest import LIMIT, Open, lose, until

done: list[Any] = []
gates: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
SOON = Retry(attempts=3, first=0.001, jitter=0.0)


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    done.clear()
    gates.clear()


@step(at_most_once=True)
async def pay(name: str) -> str:
    return f"{name} paid"


@step
async def steady(name: str) -> str:
    done.append(name)
    await gates[name].wait()
    return name


# -- queues, undos, policies -------------------------------------------------------------------------------------------


@step(queue="bank", at_most_once=True)
async def pay_at_the_bank(name: str) -> str:
    done.append(name)
    await gates[name].wait()
    return name


@step(queue="bank", retry=SOON)
async def pay_often(name: str) -> str:
    done.append(name)
    await gates[name].wait()
    return name


@workflow
async def at_the_bank(name: str, here: bool) -> str:
    try:
        return await (pay_often.options(at_most_once=True)(name) if here else pay_at_the_bank(name))
    except StepOutcomeUnknown as error:
        return f"unknown: {error.step}"


@pytest.mark.parametrize("here", [False, True])
async def test_a_queued_step_runs_at_most_once_too_also_where_only_the_asking_code_says_so(
    opened: Open, here: bool
) -> None:
    parent, _ = await opened(work=True, workflows=[at_the_bank], queues=[])
    first, store = await opened(work=True, workflows=[], queues=["bank"])
    handle = await parent.start(at_the_bank, "rent", here)
    await until(lambda: done)
    await lose(first, store)
    gates["rent"].set()
    await opened(work=True, workflows=[], queues=["bank"])
    assert await handle.result(LIMIT) == f"unknown: {'pay_often' if here else 'pay_at_the_bank'}"
    assert done == ["rent"]


@step(at_most_once=True)
async def give_back(name: str) -> None:
    done.append(f"give back {name}")
    await gates["back"].wait()


@step(undo=give_back)
async def take(name: str) -> str:
    return name


@workflow
async def taking() -> None:
    async with saga():
        await take("key")
        raise ValueError("not this one")


async def test_an_undo_with_an_unknown_end_breaks_the_process_and_a_retry_runs_it_once_more(opened: Open) -> None:
    first, store = await opened(work=True, workflows=[taking])
    handle = await first.start(taking)
    await until(lambda: done)
    await lose(first, store)
    second, _ = await opened(work=True, workflows=[taking])
    with pytest.raises(ProcessBroken, match="not known whether it was done"):
        await second.process(handle.id).result(LIMIT)
    assert done == ["give back key"]
    gates["back"].set()
    await second.process(handle.id).retry(who="anna")
    with pytest.raises(ProcessFailed, match="not this one"):
        await second.process(handle.id).result(LIMIT)
    assert done == ["give back key"] * 2


@workflow
async def by_policy() -> str:
    try:
        return await steady("ordinary")
    except StepOutcomeUnknown:
        return "unknown"


async def test_a_policy_has_a_step_run_at_most_once(opened: Open) -> None:
    options = WorkerOptions(policies={"by_policy.*.steady": Policy(at_most_once=True), "*.*.*": Policy(attempts=7)})
    first, store = await opened(work=True, workflows=[by_policy], options=options)
    handle = await first.start(by_policy)
    await until(lambda: done)
    await lose(first, store)
    gates["ordinary"].set()
    second, _ = await opened(work=True, workflows=[by_policy], options=options)
    assert await second.process(handle.id).result(LIMIT) == "unknown"
    assert done == ["ordinary"]


@step(accept="first", queue="anywhere")
async def first_of_many() -> None:
    pass


@step(transaction=True)
async def in_a_transaction() -> None:
    pass


def test_a_policy_for_all_steps_does_no_harm_where_it_makes_no_sense() -> None:
    once = first_of_many.by_policy({"at_most_once": True})
    assert once.at_most_once
    assert once.routing is not None
    assert once.routing.accept == "current"
    assert not in_a_transaction.by_policy({"at_most_once": True}).at_most_once


# -- at the door -------------------------------------------------------------------------------------------------------


def test_what_makes_no_sense_with_it_is_refused_with_what_to_do() -> None:
    async def nothing() -> None:
        pass

    for settings, advice in (
        ({"retry": Retry(attempts=3)}, "try again inside the step|tried again inside the step"),
        ({"transaction": True}, "Leave at_most_once out"),
        ({"queue": "bank", "accept": "first"}, "only one attempt"),
    ):
        with pytest.raises(DefinitionError, match=advice):
            step(at_most_once=True, **settings)(nothing)  # type: ignore[call-overload]
    with pytest.raises(DefinitionError, match="Give True or False"):
        step(at_most_once="yes")(nothing)  # type: ignore[call-overload]
    with pytest.raises(DefinitionError, match="inside the step"):
        pay.options(retry=Retry(attempts=2))
    with pytest.raises(DefinitionError, match="True or False"):
        Policy(at_most_once="yes")  # type: ignore[arg-type]
    assert pay.options(retry=Retry.NONE).at_most_once
    assert pay.options(at_most_once=False, retry=SOON).retry == SOON
    assert steady.options(at_most_once=True).retry.attempts == 1
