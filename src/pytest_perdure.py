"""The plugin of Perdure for pytest: an engine for a test, and exported histories, each a test of its own.

Perdure itself is imported when a test asks for one of these, not before.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from perdure.testing import SkippingEngine

_HISTORY, _MARK = "perdure_history", "perdure_histories"


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


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers",
        f"{_MARK}(path): run the test once for each process of an export, a file or a folder of *.jsonl files beside "
        f"the test's own file; its argument {_HISTORY} is the process.",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test of each exported process for a test that asks for ``perdure_history``."""
    if _HISTORY not in metafunc.fixturenames:
        return
    mark = metafunc.definition.get_closest_marker(_MARK)
    if mark is None or len(mark.args) != 1:
        raise pytest.Collector.CollectError(
            f"{metafunc.definition.nodeid} asks for {_HISTORY}: mark it with @pytest.mark.{_MARK}(path), the path of a "
            "file that `perdure export` has written, or of a folder with such files"
        )
    from perdure import testing
    from perdure.errors import InvalidInput

    try:
        found = list(testing.histories(metafunc.definition.path.parent / mark.args[0]))
    except InvalidInput as error:
        raise pytest.Collector.CollectError(f"{metafunc.definition.nodeid}: {error}") from None
    metafunc.parametrize(_HISTORY, found, ids=[one.name for one in found])
