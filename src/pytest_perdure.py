"""The plugin of Perdure for pytest: one fixture. Perdure itself is imported when a test asks for it, not before."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from perdure.testing import SkippingEngine


class NewEngine(Protocol):
    """What the fixture gives: a call of it, with the settings of ``perdure.testing.engine``, makes an engine."""

    def __call__(self, **settings: Any) -> AbstractAsyncContextManager[SkippingEngine]:
        """Make an engine; it is opened by ``async with``."""


@pytest.fixture
def perdure_engine(tmp_path_factory: pytest.TempPathFactory) -> NewEngine:
    """Makes engines whose time skips, for ``async with``; their databases stay in pytest's temporary folders.

    It is no async fixture, so that it fits pytest-asyncio in each of its modes, anyio, and ``asyncio.run``.
    """

    def make(**settings: Any) -> AbstractAsyncContextManager[SkippingEngine]:
        from perdure import testing

        return testing.engine(**{"folder": tmp_path_factory.mktemp("perdure")} | settings)

    return make
