"""How steps and workflows are declared: names, settings, and what is refused when it is defined."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import wraps
from typing import Any

import pytest

from perdure.authoring.attempt import ATTEMPT, Attempt
from perdure.authoring.step import Step, attempt, step
from perdure.authoring.workflow import Workflow, new_uuid, now, process_id, random_source, set_state, workflow
from perdure.errors import DefinitionError, InvalidInput, PayloadError, WorkflowMisuse
from perdure.kernel.process import Process
from perdure.kernel.retry import Retry
from tests.authoring.life import Life


@step
async def charge(order: str, cents: int = 100) -> str:
    """Charge an order."""
    return f"{order}:{cents}"


@step(name="the shop's mail", retry=Retry(attempts=5), timeout=30, permanent=(LookupError,))
def mail(order: str) -> str:
    return f"mailed {order}"


@workflow
async def order(name: str) -> str:
    return await charge(name)


@workflow(name="order", version="2", deadline=3600, idle=7200.5)
async def second_order(name: str) -> str:
    return await order(name)


def test_outside_of_a_workflow_a_step_just_runs() -> None:
    assert asyncio.run(charge("A-17")) == "A-17:100"
    assert mail("A-17") == "mailed A-17"
    assert asyncio.run(order("A-17")) == "A-17:100"


def test_a_workflow_called_in_a_workflow_is_a_part_of_it() -> None:
    life = Life(second_order, ["A-17"])
    assert life.seen[0].asked == [("charge", "1", b'["A-17"]')]
    assert life.finish_step("charge").outcome == '"A-17:100"'


@workflow
async def naming() -> list[Any]:
    async with asyncio.TaskGroup() as group:
        by_group = group.create_task(charge("A"), name="A")  # type: ignore[arg-type]
    tasks = [asyncio.create_task(charge(name), name=name) for name in ("B", "C")]  # type: ignore[arg-type,var-annotated]
    unnamed: Any = charge("D")
    done, _ = await asyncio.wait([by_group, *tasks, unnamed])
    unnamed_was, counted = unnamed.get_name(), (unnamed.cancelling(), unnamed.uncancel())
    unnamed.set_name(7)
    return [{one.get_name(): one.result() for one in done}, unnamed_was, *counted]


def test_a_step_that_is_made_a_task_has_its_name() -> None:
    life = Life(naming)
    while life.loop.open:
        life.turn(*[life.answer(ask) for ask in life.loop.open.values()])
    assert life.seen[-1].outcome == '[{"A":"A:100","B":"B:100","C":"C:100","7":"D:100"},"charge:4",0,0]'
    life.check_replays()


def test_a_step_is_known_by_its_function_and_settings() -> None:
    assert (charge.name, charge.is_async, charge.timeout, charge.retry) == ("charge", True, 3600.0, Retry())
    assert (mail.name, mail.is_async, mail.timeout, mail.retry.attempts) == ("the shop's mail", False, 30.0, 5)
    assert mail.retry.never == (LookupError,)
    assert charge.__doc__ == "Charge an order."
    assert charge.__wrapped__ is charge.function
    assert repr(mail) == "<step the shop's mail>"
    assert charge.shape.result_type is str


def test_a_queued_step_has_a_minute_a_step_here_an_hour_and_each_what_it_says() -> None:
    async def pay(cents: int) -> int:
        return cents

    assert step(queue="bank")(pay).timeout == 60.0
    assert step(queue="bank", timeout=5)(pay).timeout == 5.0
    assert step(pay).timeout == 3600.0


def test_a_workflow_is_known_by_its_function_and_settings() -> None:
    assert (order.name, order.version, order.deadline, order.idle) == ("order", f"{__name__}:order", None, None)
    assert (second_order.version, second_order.deadline) == ("2", 3600.0)
    assert second_order.idle == 7200.5
    assert repr(second_order) == "<workflow order>"


class Shop:
    """A class with functions that are no functions of a module."""

    @staticmethod
    async def close(till: int) -> int:
        return till


def test_a_staticmethod_may_be_a_step_or_a_workflow() -> None:
    assert step(Shop.close).name == "Shop.close"
    assert Step(vars(Shop)["close"]).name == "Shop.close"
    assert Workflow(vars(Shop)["close"]).name == "Shop.close"


async def _yielding() -> AsyncIterator[int]:
    yield 1


def _plainly(function: Any) -> Any:
    @wraps(function)
    def wrapper(order: str) -> Any:
        return function(order)

    return wrapper


async def _many(*orders: str) -> None: ...


async def _method(self: Any) -> None: ...


_method.__qualname__ = "Shop.method"


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda order: order, "needs a name"),
        (_yielding, "yields"),
        (_plainly(charge.function), "inside an ordinary decorator"),
        (_many, "takes \\*orders"),
        (_method, "is a method"),
        (Shop, "marks functions"),
        (print, "marks functions"),
        (charge, "marks functions"),
    ],
)
@pytest.mark.parametrize("mark", [step, workflow])
def test_what_cannot_be_called_by_its_name_alone_is_refused_when_it_is_defined(
    mark: Any, function: Any, told: str
) -> None:
    with pytest.raises(DefinitionError, match=told):
        mark(function)


@pytest.mark.parametrize(
    ("mark", "settings", "told"),
    [
        (step, {"timeout": 0}, "Give seconds"),
        (step, {"timeout": True}, "Give seconds"),
        (step, {"timeout": float("inf")}, "Give seconds"),
        (step, {"retry": 5}, "is no Retry"),
        (step, {"name": " x"}, "begins or ends with a space"),
        (step, {"queue": ""}, "is empty"),
        (step, {"queue": "bank", "priority": 10}, "from 0 .first. to 9"),
        (step, {"queue": "bank", "total": 0}, "Give seconds"),
        (step, {"priority": 1}, "Add queue="),
        (workflow, {"name": "@bank"}, "begins with @"),
        (workflow, {"name": ""}, "is empty"),
        (workflow, {"deadline": -1}, "Give seconds"),
        (workflow, {"idle": "1h"}, "Give seconds"),
        (workflow, {"version": "a\nb"}, "unprintable"),
    ],
)
def test_settings_that_make_no_sense_are_refused_when_it_is_defined(mark: Any, settings: Any, told: str) -> None:
    with pytest.raises(DefinitionError, match=told):

        @mark(**settings)
        async def wrong() -> None: ...


def test_a_workflow_is_a_coroutine_function() -> None:
    with pytest.raises(DefinitionError, match="Declare it with `async def`"):
        workflow(mail.function)


@workflow
async def asking_wrongly() -> list[str]:
    told = []
    for wrong in (
        lambda: charge(),  # type: ignore[call-arg]
        lambda: charge("a", "b", "c"),  # type: ignore[call-arg]
        lambda: charge(float("nan")),
        lambda: charge(object()),
    ):
        try:
            await wrong()
        except InvalidInput as error:
            told.append(type(error).__name__)
    return told


def test_arguments_that_do_not_fit_are_refused_in_the_workflow_before_anything_is_asked_for() -> None:
    assert Life(asking_wrongly).seen[0].outcome == '["InvalidInput","InvalidInput","PayloadError","PayloadError"]'


def test_in_turn_functions_work_in_unit_tests_as_far_as_they_make_sense() -> None:
    assert now().tzinfo is not None
    assert new_uuid() != new_uuid()
    set_state({"seen": "by nobody"})
    with pytest.raises(PayloadError):
        set_state(object())
    for lost in (process_id, random_source):
        with pytest.raises(WorkflowMisuse, match="belongs in a workflow"):
            lost()


def test_outside_of_a_running_step_the_attempt_is_neutral() -> None:
    neutral = attempt()
    neutral.heartbeat({"done": 3})
    assert neutral.last_progress == {"done": 3}
    assert (neutral.number, neutral.kind, neutral.key, neutral.remaining()) == (1, "", None, float("inf"))
    assert neutral.idempotency_key == attempt().idempotency_key
    with pytest.raises(PayloadError, match="the progress"):
        neutral.heartbeat(object())


def test_an_attempt_knows_its_process_and_beats_from_every_thread() -> None:
    beats: list[str] = []
    process = Process(id=bytes(16), kind="order", key="A-17", input=b"[]")

    async def running() -> None:
        mine = Attempt(process, "charge", 2, "k", lambda: beats.append("beat"), asyncio.get_running_loop(), lambda: 5.0)
        ATTEMPT.set(lambda: mine)
        attempt().heartbeat()
        assert beats == ["beat"]
        await asyncio.to_thread(attempt().heartbeat, 7)
        await asyncio.wait_for(_until(lambda: len(beats) == 2), 5)
        assert (mine.process, mine.kind, mine.key) == ("00000000-0000-0000-0000-000000000000", "order", "A-17")
        assert (mine.number, mine.step, mine.idempotency_key, mine.remaining()) == (2, "charge", "k", 5.0)
        assert mine.last_progress == 7

    asyncio.run(running())


async def _until(met: Any) -> None:
    while not met():
        await asyncio.sleep(0)
