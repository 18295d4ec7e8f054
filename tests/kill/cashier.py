"""A cashier: steps that pay out in a transaction, and a hand that kills or stops their worker at a chosen point of it.

A point is ``taken`` (before the transaction begins), ``written`` (the step has written), ``kept`` (its result is
recorded, before the COMMIT) or ``committed`` (before anybody is told), and a signal: ``written:9`` (0: a pause).
"""

from __future__ import annotations

import os
import time
from typing import Any

from perdure.authoring.step import attempt, step
from perdure.authoring.workflow import workflow
from perdure.kernel.retry import Retry
from perdure.runtime.steps.transactional import TransactionalSteps
from perdure.store.postgres.step_transaction import PostgresStepTransaction
from perdure.store.sqlite.step_transaction import GuardedConnection, SqliteStepTransaction
from tests.kill.workload import POINT, effect

PAUSE_SECONDS = 2.0
PATIENT = Retry(attempts=20, first=0.1, factor=1.0)


def strike(point: str) -> None:
    """Send this worker its signal, if this is the point, once."""
    chosen, _, signal = os.environ.get(POINT, "").partition(":")
    if chosen == point:
        del os.environ[POINT]
        os.kill(os.getpid(), int(signal))
        if signal == "0":
            time.sleep(PAUSE_SECONDS)


@step(transaction=True, name="pay", retry=PATIENT, timeout=2)
def pay_blocking(n: int) -> str:
    attempt().connection.execute("INSERT INTO payment VALUES (?, ?)", (n, attempt().idempotency_key))
    effect(f"pay{n}")
    strike("written")
    return f"paid {n} by {os.getpid()}"


@step(transaction=True, name="pay", retry=PATIENT, timeout=2)
async def pay_awaited(n: int) -> str:
    await attempt().connection.execute("INSERT INTO payment VALUES ($1, $2)", n, attempt().idempotency_key)
    effect(f"pay{n}")
    strike("written")
    return f"paid {n} by {os.getpid()}"


PAY = {"sqlite": pay_blocking, "postgres": pay_awaited}


@workflow
async def payment(kind: str, n: int) -> list[str]:
    return [await PAY[kind](n), await PAY[kind](n + 1)]


FLOWS = [payment]


def watched() -> None:
    """Have the points pass by :func:`strike`."""
    told, finish, commit = TransactionalSteps._tell, GuardedConnection.finish, PostgresStepTransaction._commit

    def tell(self: TransactionalSteps, *given: Any) -> None:
        strike("committed")
        told(self, *given)

    def finish_here(self: GuardedConnection) -> None:
        strike("kept")
        finish(self)

    async def commit_there(self: PostgresStepTransaction) -> None:
        strike("kept")
        await commit(self)

    TransactionalSteps._tell, GuardedConnection.finish, PostgresStepTransaction._commit = (
        tell,
        finish_here,
        commit_there,
    )  # type: ignore[method-assign]
    for kind in (SqliteStepTransaction, PostgresStepTransaction):
        kind.begin = _struck(kind.begin)  # type: ignore[method-assign]


def _struck(begin: Any) -> Any:
    async def begin_there(self: Any, *given: Any) -> bool:
        strike("taken")
        return bool(await begin(self, *given))

    return begin_there


if POINT in os.environ:
    watched()
