"""Steps with a transaction in virtual time: whatever is killed, lost or late, effect and result are there together."""

from __future__ import annotations

from collections import Counter

import pytest

from perdure.kernel.message import Message
from perdure.store.step_transaction import StepTransactionAnswer
from perdure.testing.simulator import History, Swarm, simulate
from perdure.testing.simulator.step_transaction import SimStepTransaction
from tests.simulator.core_step_transactions import postings, transactions
from tests.simulator.form import enough, seeds

ROUGH = Swarm(
    nodes=2,
    latencies=(0.0005, 0.05),
    faults={"failed before": 0.15, "failed after": 0.2, "died before": 0.01, "died after": 0.02},
    blows={"kill": 0.05, "pause": 0.05},
    late=0.5,
    storm_seconds=10.0,
)
FAILED = {"! keep: failed before", "! keep: failed after"}
"""What must have been met: which seeds meet it changes with whatever draws more or less."""


def history(seed: int, swarm: Swarm | None = None) -> History:
    return simulate(transactions, seed, workflows=[postings], swarm=swarm)


def test_effect_and_result_are_there_together_or_neither_whatever_happens() -> None:
    met: Counter[str] = Counter()
    for played, seed in enumerate(seeds(16, 40, first=24)):
        told = history(seed, ROUGH if seed % 2 else None).check().log.entries()
        met.update(text for _, _, text in told if text.startswith("! keep: "))
        if enough(played, 2) and met.keys() >= FAILED:
            break
    assert met.keys() >= FAILED


@pytest.mark.long
def test_a_history_with_such_steps_is_repeated_to_the_byte() -> None:
    one = history(4)
    again = simulate(transactions, 4, workflows=[postings], choices=one.choices)
    assert one.digest() == history(4).digest() == again.digest()


def test_a_step_transaction_that_is_kept_in_two_transactions_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = SimStepTransaction.keep

    async def split(self: SimStepTransaction, message: Message, owner: bytes, token: int) -> StepTransactionAnswer:
        written, self.connection.written = self.connection.written, []
        await self._store.write(
            lambda transaction: [transaction.connection.raw.execute(statement, given) for statement, given in written]
        )
        return await whole(self, message, owner, token)

    monkeypatch.setattr(SimStepTransaction, "keep", split)
    broken = (history(seed, ROUGH).violation for seed in range(20))
    assert next(violation.law for violation in broken if violation is not None) == "effect_once"
