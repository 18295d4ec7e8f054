"""Stored histories replayed against other code: what does not fit is found by cause, and nothing else happens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perdure import Engine, ProcessFailed
from perdure.client import snapshot
from perdure.errors import InvalidInput, StoreUnavailable
from perdure.rehearsal.report import Misfit, Rehearsal
from perdure.store.sealed.offload import Folder
from perdure.testing.faults import FaultyStore
from tests.rehearsal import code
from tests.runtime.conftest import LIMIT, Open, until_row


async def some_sales(opened: Open, many: int = 3) -> Engine:
    """Sales that wait for a signal."""
    flow = code.sale()
    engine, _ = await opened(work=True, workflows=[flow])
    handles = await engine.start_many(flow, [(f"A-{n}",) for n in range(many)], keys=[f"A-{n}" for n in range(many)])
    for handle in handles:
        await until_row(engine, handle.id, lambda row: row.awaiting == "signal packed" and row.owner is None)
    return engine


async def rehearsed(opened: Open, flow: Any, where: str = "", **more: Any) -> Rehearsal:
    """The rehearsal by a program that has this code, and does not work; it has written nothing."""
    engine, store = await opened(workflows=[flow])
    called = Calls(store)
    found = await engine.rehearse(where, **more)
    assert called.names <= {"now", "search", "history", "messages"}, "it only reads"
    return found


class Calls:
    """Which methods of a store are called."""

    def __init__(self, store: FaultyStore) -> None:
        self.names: set[str] = set()
        for name in ("start", "send", "claim", "commit", "enlist", "beat", "retire", "prune", "records"):
            setattr(store, name, self._noting(name, getattr(store, name)))

    def _noting(self, name: str, method: Any) -> Any:
        async def noting(*args: Any, **kwargs: Any) -> Any:
            self.names.add(name)
            return await method(*args, **kwargs)

        return noting


def only(found: Rehearsal) -> Misfit:
    """The one cause that was found."""
    [misfit] = found.misfits
    return misfit


async def test_code_that_has_changed_behind_the_history_fits(opened: Open) -> None:
    await some_sales(opened)
    for release in ("first", "longer", "patching"):
        found = await rehearsed(opened, code.sale(release))
        assert (found.total, found.fits, found.unfit) == (3, True, 0), release
    assert code.done == {"charge A-0": 1, "charge A-1": 1, "charge A-2": 1}, "no step ran"


async def test_what_does_not_fit_is_one_line_with_the_place_and_both_sides(opened: Open) -> None:
    engine = await some_sales(opened)
    found = await rehearsed(opened, code.sale("misfitting"))
    misfit = only(found)
    assert (found.total, found.unfit, misfit.count, misfit.type) == (3, 3, 3, "HistoryMisfit")
    assert (misfit.kind, misfit.version, misfit.event, misfit.step) == ("sale", "1", 1, "charge:1")
    assert "a result of step 'charge'" in misfit.example and "asked for step check" in misfit.example
    assert set(misfit.samples) == {row.id for row in await engine.list()}
    with pytest.raises(AssertionError, match="3 of 3 processes do not fit the code:\n3 of sale 1, such as "):
        found.check()


async def test_code_that_would_fail_where_the_history_waits_does_not_fit(opened: Open) -> None:
    await some_sales(opened)
    misfit = only(await rehearsed(opened, code.sale("refusing")))
    assert (misfit.count, misfit.type) == (3, "Permanent")
    assert misfit.message == "the code ends here with this error: no more orders like '…'"


async def test_an_input_that_new_parameters_do_not_take_does_not_fit(opened: Open) -> None:
    await some_sales(opened, 1)
    misfit = only(await rehearsed(opened, code.sale("numbered")))
    assert (misfit.type, misfit.event) == ("PayloadError", 0)


async def test_a_version_that_is_not_at_hand_is_told_and_another_can_be_rehearsed(opened: Open) -> None:
    await some_sales(opened, 1)
    newer = code.sale("longer", "2")
    misfit = only(await rehearsed(opened, newer))
    assert (misfit.type, misfit.example) == (
        "NotHosted",
        "the code at hand has no version '1' of sale: its versions here are '2'",
    )
    assert (await rehearsed(opened, newer, version="2")).fits
    assert not (await rehearsed(opened, code.sale("misfitting", "2"), version="2")).fits


async def test_a_query_narrows_and_ended_processes_are_rehearsed_if_it_names_a_status(opened: Open) -> None:
    engine = await some_sales(opened)
    handle = await engine.handle("sale", "A-1")
    await handle.signal("packed", "now")
    assert await handle.result(LIMIT) == "sent A-1"
    wrong = code.sale("misfitting")
    assert (await rehearsed(opened, wrong)).unfit == 2
    assert (await rehearsed(opened, wrong, "key = A-2")).unfit == 1
    assert (await rehearsed(opened, wrong, "status = completed")).unfit == 1
    assert (await rehearsed(opened, wrong, "status in (running, completed)")).unfit == 3
    assert (await rehearsed(opened, wrong, kind="other")).total == 0
    assert (await rehearsed(opened, code.sale(), "status = completed")).fits
    longer = only(await rehearsed(opened, code.sale("longer"), "status = completed"))
    assert longer.message == "the history has ended, and the code waits for step ship"
    with pytest.raises(InvalidInput):
        await rehearsed(opened, wrong, "colour = red")


async def test_a_failed_process_fits_the_code_that_has_failed(opened: Open) -> None:
    flow = code.sale("refusing")
    engine, _ = await opened(work=True, workflows=[flow])
    handle = await engine.start(flow, "A-1")
    with pytest.raises(ProcessFailed):
        await handle.result(LIMIT)
    assert (await rehearsed(opened, flow, "status = failed")).fits


async def test_the_fields_of_a_machine_are_upgraded_in_the_rehearsal_alone(opened: Open) -> None:
    first = code.shelf()
    engine, _ = await opened(work=True, workflows=[first.built])
    handle = await engine.start(first.built.options(key="S-1"))
    assert await handle.call(first.put, 24) == 24
    before = await until_row(engine, handle.id, lambda row: row.owner is None)
    assert (await rehearsed(opened, code.shelf().built)).fits
    assert (await rehearsed(opened, code.shelf("second").built)).fits
    misfit = only(await rehearsed(opened, code.shelf("broken").built))
    assert (misfit.kind, misfit.type, misfit.count) == ("shelf", "KeyError", 1)
    assert await engine.row(handle.id) == before


async def test_what_is_kept_outside_the_database_is_fetched_for_the_rehearsal(opened: Open, tmp_path: Path) -> None:
    flow, outside = code.sale(), Folder(tmp_path / "blobs", above=100)
    engine, _ = await opened(work=True, workflows=[flow], offload=outside)
    handle = await engine.start(flow, "A-1" * 1000)
    await until_row(engine, handle.id, lambda row: row.awaiting == "signal packed" and row.owner is None)
    found = await engine.rehearse()
    assert (found.total, found.misfits) == (1, [])
    other, _ = await opened(workflows=[code.sale("misfitting")], offload=outside)
    assert only(await other.rehearse()).type == "HistoryMisfit"


async def test_while_an_offload_is_away_nothing_is_called_a_misfit_and_no_line_is_written(
    opened: Open, tmp_path: Path
) -> None:
    flow, folder = code.sale(), tmp_path / "blobs"
    engine, _ = await opened(work=True, workflows=[flow], offload=Folder(folder, above=100))
    handle = await engine.start(flow, "A-1" * 1000)
    await until_row(engine, handle.id, lambda row: row.awaiting == "signal packed" and row.owner is None)
    folder.rename(tmp_path / "away")
    with pytest.raises(StoreUnavailable, match="cannot be reached now"):
        await engine.rehearse()
    with pytest.raises(StoreUnavailable, match="cannot be reached now"):
        await anext(engine.archive.export())


async def test_many_are_read_in_portions(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "EVENTS_READ", 3)
    await some_sales(opened, 7)
    read: list[int] = []
    plain = snapshot.portions

    def noting(rows: Any, *bounds: int) -> Any:
        for portion in plain(rows, *bounds):
            read.append(sum(row.events for row in portion))
            yield portion

    monkeypatch.setattr(snapshot, "portions", noting)
    assert (await rehearsed(opened, code.sale())).total == 7
    assert sum(read) == 7 and max(read) == 3


async def test_a_history_that_is_not_whole_is_told_as_damaged(opened: Open) -> None:
    await some_sales(opened, 1)
    engine, store = await opened(workflows=[code.sale()])
    plain = store.history

    async def cut(*args: Any, **kwargs: Any) -> Any:
        return (await plain(*args, **kwargs))[1:]

    store.history = cut  # type: ignore[method-assign]
    misfit = only(await engine.rehearse())
    assert misfit.type == "DamagedRecord"
