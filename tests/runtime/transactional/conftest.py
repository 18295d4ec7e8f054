"""The account of each test of steps with a transaction, and a worker that knows the workflows that book there."""

from __future__ import annotations

import pytest

from perdure.engine import Engine
from tests.runtime.account import FLOWS, Account, answers, hooks
from tests.runtime.conftest import Open


@pytest.fixture
def account(store_url: str) -> Account:
    """The table of bookings in each database; nobody has said yet what its steps do beside writing there."""
    hooks.clear()
    answers.clear()
    return Account(store_url)


@pytest.fixture
async def engine(opened: Open, account: Account) -> Engine:
    """A worker, and the table of bookings."""
    engine, _ = await opened(work=True, workflows=FLOWS)
    await account.open()
    return engine
