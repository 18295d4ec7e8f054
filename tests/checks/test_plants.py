"""Every check finds the fault that is planted for it, explains it, shows what it would do, and mends it; no other."""

from __future__ import annotations

import pytest

from perdure import Engine
from perdure.kernel.check import BY_NAME, CHECKS
from perdure.runtime.options import WorkerOptions
from tests.checks import plants, shop
from tests.checks.plants import PLANTS, Plant
from tests.runtime.conftest import LIMIT, Open


async def planted(opened: Open, store_url: str, plant: Plant) -> tuple[Engine, Engine, str]:
    """A client, a worker that hosts check runs alone, and the damaged process; nothing else moves it."""
    working, _ = await opened(work=True, workflows=[shop.order, shop.sale, shop.delivery, shop.dispatch], queues=[])
    id = await plant.prepare(working)
    await working.close()
    client, _ = await opened()
    await client.recovery.pause(why="the sweeps of a worker mend some of it too")
    sound = await client.checks.preview()
    assert sound.found == {}, sound.sample
    await plants.sow(store_url, id, plant.sql)
    quiet = WorkerOptions(check_rate=0)
    return client, (await opened(work=True, workflows=[], queues=[], options=quiet))[0], id


def test_every_check_has_a_planted_fault() -> None:
    assert set(PLANTS) == set(BY_NAME) and len(CHECKS) == len(BY_NAME)
    for check in CHECKS:
        assert (check.fix is not None) is (PLANTS[check.name].after is not None), check.name


@pytest.mark.parametrize("name", PLANTS)
async def test_a_planted_fault_is_found_explained_tried_and_mended(opened: Open, store_url: str, name: str) -> None:
    plant = PLANTS[name]
    client, _, id = await planted(opened, store_url, plant)
    preview = await client.checks.preview(only=[name])
    before = await client.row(id)
    assert preview.found == {name: 1}
    [one] = preview.sample
    assert (one.check, one.process) == (name, id) and plant.says in one.text
    assert bool(one.fix) is (plant.after is not None) is bool(preview.would_mend)
    assert await client.row(id) == before, "a dry run writes nothing"
    assert await client.checks.findings() == []

    found = await (await client.checks.start(only=[name])).result(LIMIT)
    assert (found.found, found.mended) == ({name: 1}, {}) and await client.row(id) == before
    [finding] = await client.checks.findings()
    assert (finding.check, finding.process, finding.gone_at) == (name, id, None) and plant.says in finding.text

    mended = await (await client.checks.start(only=[name], fix=True, who="ann", why="the disk")).result(LIMIT)
    [finding] = await client.checks.findings(gone=True)
    if plant.after is None:
        assert mended.mended == {} and finding.gone_at is None and await client.row(id) == before
        return
    assert mended.mended == {name: 1}
    assert (finding.mended_by, finding.mended) == ("ann", one.fix) and finding.gone_at is not None
    after = await client.row(id)
    assert after.status is plant.after
    again = await client.checks.preview(only=[name])
    assert bool(again.found) is plant.remains and again.would_mend == {}
