"""The conformance suite on every store that ships; behind a pooler stands the sealed one."""

from __future__ import annotations

import pytest

from perdure.testing.conformance import Ground, StoreConformance


class TestSqliteFile(StoreConformance):
    @pytest.fixture
    def ground(self, sqlite_file: Ground) -> Ground:
        return sqlite_file


class TestSqliteMemory(StoreConformance):
    @pytest.fixture
    def ground(self, sqlite_memory: Ground) -> Ground:
        return sqlite_memory


class TestPostgres(StoreConformance):
    """Where decoys stand in the way of every name, so that each sentence says that none was used, too."""

    @pytest.fixture
    def ground(self, among_decoys: Ground) -> Ground:
        return among_decoys
