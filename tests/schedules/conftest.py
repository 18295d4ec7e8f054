"""Engines on each kind of store, as the tests of the runtime open them, and a ledger of what was started."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from perdure.authoring.workflow import DEFINED
from tests.runtime.conftest import opened, postgres_url
from tests.schedules import reports

__all__ = ["opened", "postgres_url"]


@pytest.fixture(autouse=True)
def _nothing_done() -> Iterator[None]:
    """Nothing was started before, and no later engine of this program keeps a schedule of these tests."""
    reports.done.clear()
    reports.gates.clear()
    yield
    for workflow in list(DEFINED.values()):
        workflow.schedule = None
