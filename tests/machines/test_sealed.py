"""A machine whose fields are sealed, large ones outside of the database: only who has the key sees and changes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure import limits
from perdure.errors import CallRefused, PerdureError
from perdure.kernel.process import Status
from perdure.store.sealed.offload import Folder
from tests.machines.account import Account, done, rates
from tests.runtime.conftest import LIMIT, Open, until_row
from tests.runtime.test_sealed_life import sealed


async def test_a_sealed_machine_lives_folds_breaks_and_is_mended_by_those_who_have_the_key(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FOLDED_TURNS", 8)
    folder = Folder(tmp_path / "blobs", above=500)
    engine, _ = await opened(work=True, codecs=sealed(), offload=folder)
    ann = await engine.start(Account.opened, "Ann")
    for n in range(12):
        await ann.signal(Account.note, f"{n} " + 60 * "x")
        assert await ann.call(Account.deposit, 1) == n + 1
    assert (await engine.row(ann.id)).run > 1
    with pytest.raises(CallRefused):
        await ann.call(Account.earn, "the bank")
    await until_row(engine, ann.id, lambda row: row.status is Status.BROKEN)
    stranger, _ = await opened()
    with pytest.raises(PerdureError):
        await stranger.process(ann.id).repair(Account.corrected, 3)
    assert (await stranger.row(ann.id)).status is Status.BROKEN
    rates["the bank"] = 1
    await ann.retry()
    assert await ann.call(Account.deposit, 1) == 14
    await engine.close(0)
    again, _ = await opened(work=True, codecs=sealed(), offload=folder)
    assert len(await again.process(ann.id).call(Account.history)) == 25
    await again.process(ann.id).signal(Account.close)
    assert await again.process(ann.id).result(LIMIT) == 14
    assert done["opened for Ann"] == 1
