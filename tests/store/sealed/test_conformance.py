"""The conformance suite on sealed stores: who uses one cannot tell it from the store behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.store.sealed.offload import Folder
from perdure.testing.conformance import Ground, StoreConformance
from perdure.testing.conformance.lettering import bulk
from perdure.testing.conformance.trial import Trial
from tests.store.sealed.ground import SealedGround, codecs


class TestSealedSqlite(StoreConformance):
    """Compressed and encrypted, and what takes more than 4 KiB kept in a folder."""

    @pytest.fixture
    def ground(self, sqlite_file: Ground, tmp_path: Path) -> Ground:
        return SealedGround(sqlite_file, codecs(), Folder(tmp_path / "blobs", above=4096))

    async def test_a_claim_takes_no_more_than_8_mib_of_rows_and_one_at_least(self, trial: Trial) -> None:
        """What a row holds counts: of a payload in the folder, where it lies."""
        for n in range(10):
            await trial.started(input=bulk(1_000_000 + n))
        assert len((await trial.claim(await trial.worker())).claimed) == 10

    async def test_no_more_are_taken_than_one_answer_holds(self, trial: Trial) -> None:
        """The same: these rows are small."""
        assert await self._large_recalled(trial) == 20


class TestSealedPostgresPooled(StoreConformance):
    """Compressed and encrypted, behind PgBouncer in transaction mode, among decoys that the login's path finds first.

    No LISTEN and no lock of one's own there; everything else. The seal knows nothing of what lies below it, and what
    lies below only sees other bytes: what fails here and not in ``TestPostgres`` is the seal's if it fails in
    ``TestSealedSqlite`` too, and else comes of the pooler.
    """

    @pytest.fixture
    def ground(self, pooled_among_decoys: Ground) -> Ground:
        return SealedGround(pooled_among_decoys, codecs())
