"""A sealed ground on each database in turn."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from perdure.store.sealed.offload import Folder
from perdure.testing.clock import MovableMachine
from perdure.testing.conformance import Ground, Trial
from tests.store.sealed.ground import SealedGround, codecs

Tried = Callable[..., AbstractAsyncContextManager[Trial]]


@pytest.fixture(params=["sqlite_file", "postgres"])
def below(request: pytest.FixtureRequest) -> Ground:
    """The database below, of each kind in turn."""
    found: Ground = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """An empty offload that takes nearly everything, and removes at once what nobody needs."""
    folder = Folder(tmp_path / "blobs", above=200)
    folder.grace = 0.0
    return folder


@pytest.fixture
def tried(below: Ground) -> Tried:
    """Opens a trial on a sealed store: by the codecs and the offload given, on the same database each time."""
    ids = MovableMachine()

    @asynccontextmanager
    async def open(chain: Any = None, offload: Any = None, *, bare: bool = False) -> AsyncIterator[Trial]:
        ground = SealedGround(below, codecs() if chain is None else chain, offload)
        store = ground.bare() if bare else ground.store()
        await store.open()
        try:
            yield Trial(ground, store, ids)
        finally:
            await store.close()

    return open
