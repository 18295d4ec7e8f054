"""The conformance suite on every store that ships."""

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
    @pytest.fixture
    def ground(self, postgres: Ground) -> Ground:
        return postgres


class TestPostgresPooled(StoreConformance):
    """Behind PgBouncer in transaction mode: no LISTEN, no lock of one's own, everything else."""

    @pytest.fixture
    def ground(self, pooled: Ground) -> Ground:
        return pooled
