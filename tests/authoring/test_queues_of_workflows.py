"""A workflow that is chosen brings the queues of its steps; where queues are given, those are served and no others."""

from __future__ import annotations

from perdure.authoring.registry import Registry
from perdure.authoring.step import step
from perdure.authoring.workflow import workflow
from perdure.engine import Engine


@step(queue="chosen/refunds")
async def refund(order: str) -> None: ...


@step(undo=refund)
async def charge(order: str) -> str:
    return order


@step(queue="chosen/parcels")
async def pack(order: str) -> str:
    return order


@step(queue="chosen/others")
async def other(order: str) -> str:
    return order


async def ship(order: str) -> str:
    return await pack(order)


@workflow(name="chosen/order")
async def order(number: str) -> str:
    await charge(number)
    return await ship(number)


@workflow(name="chosen/lone")
async def lone(number: str) -> str:
    return await other(number)


def served(registry: Registry) -> set[str]:
    return {work.queue for work in registry.queues.values()}


def test_a_chosen_workflow_brings_the_queues_of_its_steps_of_their_undos_and_of_the_functions_it_calls() -> None:
    assert served(Registry(order)) == {"chosen/refunds", "chosen/parcels"}


def test_queues_that_are_given_are_served_and_no_others() -> None:
    engine = Engine("sqlite://:memory:", work=True, workflows=[order], queues=["bank"])
    assert served(engine.registry) == {"bank"}
    engine = Engine("sqlite://:memory:", work=True, workflows=[order], queues=[])
    assert served(engine.registry) == set()


def test_a_workflow_that_is_only_started_brings_no_queue() -> None:
    registry = Registry(order)
    assert registry.find(lone) is lone
    assert "chosen/others" not in served(registry)
