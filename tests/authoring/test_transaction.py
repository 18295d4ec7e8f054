"""What a step with a transaction may be, and what it is refused with at its definition or outside of a workflow."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.authoring.attempt import Attempt
from perdure.authoring.step import attempt, step, unfit
from perdure.errors import DefinitionError
from perdure.limits import STEP_TIMEOUT_SECONDS, TRANSACTION_TIMEOUT_SECONDS


@step(transaction=True)
def write(n: int) -> int:
    return n


@step(transaction=True, timeout=60)
async def write_awaited(n: int) -> int:
    return n


@step
def look(n: int) -> int:
    return n


def test_a_step_has_a_transaction_if_it_says_so_and_then_little_time() -> None:
    assert (write.transaction, write.timeout) == (True, TRANSACTION_TIMEOUT_SECONDS)
    assert (write_awaited.transaction, write_awaited.timeout) == (True, 60)
    assert (look.transaction, look.timeout) == (False, STEP_TIMEOUT_SECONDS)
    assert write.options(timeout=3).transaction
    assert write.options(timeout=3).timeout == 3


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"transaction": 1}, "Write transaction=True"),
        ({"transaction": True, "hard": True}, "is hard and has a transaction"),
        ({"transaction": True, "queue": "bank"}, "is queued and has a transaction"),
    ],
)
def test_what_does_not_go_together_is_refused_at_the_definition(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(DefinitionError, match=told):
        step(**settings)(len_of)


def len_of(text: str) -> int:
    return len(text)


def test_a_step_with_a_transaction_is_not_queued_at_one_place_either() -> None:
    with pytest.raises(DefinitionError, match="is queued and has a transaction"):
        write.options(queue="bank")


@pytest.mark.parametrize(
    ("blocking", "fits", "misfits", "told"),
    [
        (True, write, write_awaited, "Write it as an ordinary `def`"),
        (False, write_awaited, write, "Write it as an `async def`"),
        (None, None, write, "Use PostgreSQL, or SQLite with a file"),
    ],
)
def test_the_form_of_the_function_follows_the_store(blocking: bool | None, fits: Any, misfits: Any, told: str) -> None:
    assert fits is None or unfit(fits, blocking) is None
    assert told in str(unfit(misfits, blocking))


def test_without_a_transaction_there_is_no_connection_and_it_says_what_to_do() -> None:
    assert write(3) == 3, "outside of a workflow a step just runs"
    with pytest.raises(DefinitionError, match="transaction=True"):
        _ = attempt().connection
    connection = object()
    assert Attempt(connection=connection).connection is connection
