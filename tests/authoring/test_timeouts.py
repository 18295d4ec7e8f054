"""The timeout of a step: what is written counts, and what is not written is as short as suits what waits for it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from perdure.authoring.step import Step, step
from perdure.authoring.step_policies import StepPolicies
from perdure.clock import Duration
from perdure.kernel.policy import Policies, Policy
from perdure.limits import QUEUED_STEP_TIMEOUT_SECONDS, STEP_TIMEOUT_SECONDS, TRANSACTION_TIMEOUT_SECONDS

HOUR = timedelta(hours=1)
an_hour = pytest.mark.parametrize("hour", [3600, 3600.0, HOUR], ids=["whole", "float", "timedelta"])
kinds = pytest.mark.parametrize(
    ("settings", "usual"),
    [
        ({}, STEP_TIMEOUT_SECONDS),
        ({"queue": "press"}, QUEUED_STEP_TIMEOUT_SECONDS),
        ({"transaction": True}, TRANSACTION_TIMEOUT_SECONDS),
    ],
    ids=["ordinary", "queued", "with a transaction"],
)
EVERY_STEP = StepPolicies(Policies([("the file", {"*.*.*": Policy(timeout=5)})]))


def made(**settings: Any) -> Step[[str], str]:
    """A step with these settings."""

    @step(**settings)
    def stamp(text: str) -> str:
        return text

    return stamp


@an_hour
@kinds
def test_an_hour_that_is_written_counts_for_every_kind_of_step(
    hour: Duration, settings: dict[str, Any], usual: float
) -> None:
    assert made(**settings).timeout == usual
    assert made(timeout=hour, **settings).timeout == 3600
    assert made(**settings).options(timeout=hour).timeout == 3600
    assert made(timeout=30, **settings).options(timeout=hour).timeout == 3600


@an_hour
def test_a_policy_for_every_step_replaces_no_hour_that_is_written(hour: Duration) -> None:
    assert EVERY_STEP.applied("order", made()).timeout == 5
    assert EVERY_STEP.applied("order", made(timeout=hour)).timeout == 3600
    assert EVERY_STEP.applied("order", made().options(timeout=hour)).timeout == 3600
    assert EVERY_STEP.applied("order", made(timeout=hour).options(queue="press")).timeout == 3600


def test_a_step_that_is_queued_at_one_place_has_the_timeout_of_queued_steps_there() -> None:
    there = made().options(queue="press")
    assert (there.timeout, there.options(priority=0).timeout) == (QUEUED_STEP_TIMEOUT_SECONDS,) * 2
    assert EVERY_STEP.applied("order", there).timeout == 5
    assert made(timeout=HOUR).options(queue="press").timeout == 3600
    assert made().options(queue="press", timeout=HOUR).timeout == 3600
    assert made().options(timeout=HOUR).options(queue="press").timeout == 3600


def test_the_worker_of_a_queue_gives_a_step_the_timeout_of_queued_steps_wherever_it_was_queued() -> None:
    assert made().here(None, None).timeout == QUEUED_STEP_TIMEOUT_SECONDS
    assert made(queue="press").here(None, None).timeout == QUEUED_STEP_TIMEOUT_SECONDS
    assert made(timeout=HOUR).here(None, None).timeout == 3600
    assert made(queue="press").here(None, 3600.0).timeout == 3600
