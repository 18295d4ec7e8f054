"""The conformance suite on sealed stores: who uses one cannot tell it from the store behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.store.offload import Folder
from perdure.testing.conformance import Ground, StoreConformance
from tests.store.sealed.ground import SealedGround, codecs


class TestSealedSqlite(StoreConformance):
    """Compressed and encrypted, and what takes more than 4 KiB kept in a folder."""

    @pytest.fixture
    def ground(self, sqlite_file: Ground, tmp_path: Path) -> Ground:
        return SealedGround(sqlite_file, codecs(), Folder(tmp_path / "blobs", above=4096))


class TestSealedPostgres(StoreConformance):
    """Compressed and encrypted."""

    @pytest.fixture
    def ground(self, postgres: Ground) -> Ground:
        return SealedGround(postgres, codecs())
