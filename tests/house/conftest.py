"""The house tests read every file of the project: millions of nodes, of which none is garbage until they end."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tests.house import tree


@pytest.fixture(scope="package", autouse=True)
def _nothing_is_searched_for_garbage() -> Iterator[None]:
    """Without it, two thirds of the time to parse the files is spent on looking through the nodes again and again."""
    gc.disable()
    yield
    tree.modules.cache_clear()
    tree.parsed.cache_clear()  # else they are looked through once more at the end
    gc.enable()
