"""The permanent errors of a step: no retry that the step is given, by whomever, tries them again."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import testing
from perdure.authoring.step import step
from perdure.authoring.step_policies import StepPolicies
from perdure.authoring.workflow import workflow
from perdure.errors import DefinitionError, ProcessFailed
from perdure.kernel.policy import Policies, Policy
from perdure.kernel.retry import Retry
from perdure.runtime.steps.circuits import blames

called: list[str] = []


class CardStolen(Exception):
    """No other attempt can cure that."""


class CardExpired(CardStolen):
    """Nor that."""


@step(permanent=CardStolen, retry=Retry(attempts=3))
async def charge(card: str) -> None:
    called.append(card)
    raise CardExpired(card)


@step(permanent=(CardStolen,), queue="bank")
async def charge_there(card: str) -> None:
    called.append(card)
    raise CardStolen(card)


@workflow
async def shopper() -> None:
    await charge.options(retry=Retry(attempts=5, first=0))("gold")


@workflow
async def distant_shopper() -> None:
    await charge_there.options(retry=Retry(attempts=5, first=0))("silver")


@pytest.mark.parametrize("flow", [shopper, distant_shopper], ids=["here", "in a queue"])
async def test_a_permanent_error_is_not_tried_again_by_the_retry_of_one_place(flow: object) -> None:
    called.clear()
    async with testing.engine(workflows=[shopper, distant_shopper]) as engine:
        with pytest.raises(ProcessFailed, match="Card"):
            await (await engine.start(flow)).result()  # type: ignore[call-overload]
    assert len(called) == 1


def test_the_permanent_errors_are_added_to_those_that_the_retry_of_one_place_excludes() -> None:
    here = charge.options(retry=Retry(attempts=5, never=LookupError))
    assert here.retry == Retry(attempts=5, never=(LookupError, CardStolen))
    assert here.options(retry=Retry(attempts=2)).retry == Retry(attempts=2, never=(CardStolen,))
    assert here.options(timeout=5).retry.never == (LookupError, CardStolen)
    with pytest.raises(DefinitionError, match="CardExpired"):
        charge.options(retry=Retry(on=CardExpired))


@pytest.mark.parametrize(
    ("name", "classes"), [("on", ConnectionError), ("never", LookupError), ("waits", {TimeoutError: 5})]
)
def test_a_queued_step_is_refused_other_error_classes_at_one_place(name: str, classes: Any) -> None:
    retry = Retry(attempts=5, **{name: classes})
    refusal = pytest.raises(DefinitionError, match=rf"charge_there> is queued.*{name}=.*in @step\(retry=")
    with refusal:
        charge_there.options(retry=retry)
    here = charge.options(retry=retry)
    for queue_it in (lambda: here.options(queue="bank"), lambda: charge.options(queue="bank", retry=retry)):
        with pytest.raises(DefinitionError, match="is queued"):
            queue_it()
    same = step(queue="bank", permanent=CardStolen, retry=retry)(charge.function)
    assert same.options(retry=retry).retry == same.retry, "its worker knows them"
    assert same.options(retry=Retry(attempts=9)).retry.attempts == 9
    assert same.options(at_most_once=True).options(priority=1).at_most_once


def test_a_policy_keeps_the_permanent_errors() -> None:
    policies = StepPolicies(Policies([("the file", {"*.*.*": Policy(attempts=9)})]))
    assert policies.applied("shopper", charge_there).retry == Retry(attempts=9, never=(CardStolen,))
    once = StepPolicies(Policies([("the file", {"*.*.*": Policy(at_most_once=True)})]))
    assert once.applied("shopper", charge).retry.never == (CardStolen,)


def test_a_permanent_error_is_no_failure_of_the_provider_whatever_the_retry() -> None:
    for here in (
        charge,
        charge.options(retry=Retry(attempts=5)),
        charge.options(at_most_once=True),
        step(permanent=CardStolen, at_most_once=True)(charge.function),
    ):
        assert not blames(here, CardExpired("gold"))
        assert blames(here, ConnectionError("no answer"))
