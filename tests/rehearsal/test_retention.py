"""Processes are archived and removed by rules: what rules would do is shown, and what was archived is read again."""

from __future__ import annotations

import asyncio
import gzip
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure import BlockingEngine, Engine, RetentionRule, Status, limits, receive, workflow
from perdure.client.retention import RetentionRun
from perdure.errors import ArchiveUnwritable, DefinitionError, InvalidInput, ProcessNotFound
from perdure.kernel import archive
from perdure.kernel.names import id_text
from perdure.retention.archive_file import files
from perdure.retention.archive_file import opened as archive_opened
from perdure.store.sealed.codec import AesGcm
from perdure.testing import histories, rehearse
from tests.rehearsal import code
from tests.runtime.conftest import LIMIT, Open, until_row
from tests.source import PYTHONPATH


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first minute after an end is over."""
    monkeypatch.setattr(limits, "RETENTION_SETTLED_SECONDS", 0.0)


@workflow
async def leaf(number: int) -> int:
    return number


@workflow
async def root(number: int) -> int:
    found = await leaf.child(number)
    await receive("go", str)
    return found


async def sold(engine: Engine, flow: Any, order: str) -> str:
    """A sale that has ended; its id."""
    handle = await engine.start(flow.options(key=order), order)
    await handle.signal("packed", "now")
    assert await handle.result(LIMIT) == f"sent {order}"
    return handle.id


def ids_in(folder: Path) -> Counter[str]:
    """How often each process is in the archive."""
    found: Counter[str] = Counter()
    for file in folder.glob("*"):
        with archive_opened(file) as lines:
            found.update(id_text(archive.read(line).process.id) for line in lines)
    return found


async def test_a_preview_counts_by_rule_and_changes_nothing_and_a_run_does_what_it_said(
    opened: Open, tmp_path: Path
) -> None:
    flow = code.sale()
    rules = [RetentionRule(kind="sale", status="completed", after=0), RetentionRule(kind="sale", after="30d")]
    engine, _ = await opened(work=True, workflows=[flow])
    ids = [await sold(engine, flow, f"A-{number}") for number in range(3)]
    cancelled = await engine.start(flow, "A-9")
    await until_row(engine, cancelled.id, lambda row: row.awaiting == "signal packed" and row.owner is None)
    await cancelled.terminate()
    client, _ = await opened(retention=rules)
    before = {row.id: row for row in await engine.list()}
    first, second = await client.retention.preview()
    assert (first.rule, first.processes, first.waiting) == (rules[0], 3, 0)
    assert first.oldest is not None and first.oldest == min(before[id].changed_at for id in ids)
    assert (second.processes, second.oldest) == (0, None)
    assert {row.id: row for row in await engine.list()} == before
    assert [view.seen_at for view in await client.retention.list()] == [None, None]
    told: list[int] = []
    done = await client.retention.run(lambda done: told.append(done.removed))
    assert (done.removed, done.archived, done.files) == (3, 0, []) and told[-1] == 3
    assert [row.id for row in await engine.list()] == [cancelled.id]
    first_view, second_view = await client.retention.list()
    assert (first_view.removed, second_view.removed, first_view.left) == (3, 0, 0)
    assert first_view.seen_at is not None and first_view.reached is not None
    assert (await client.retention.run()).removed == 0


@pytest.mark.parametrize("compress", [True, False])
async def test_what_was_archived_is_imported_as_it_was_and_rehearsed(
    opened: Open, tmp_path: Path, compress: bool
) -> None:
    flow = code.sale()
    engine, _ = await opened(work=True, workflows=[flow])
    id = await sold(engine, flow, "A-1")
    events = await engine.store.history((await engine.row(id)).id, 1)
    rule = RetentionRule(kind="sale", after=0, archive=tmp_path / "old", compress=compress)
    client, _ = await opened(retention=[rule])
    done = await client.retention.run()
    assert (done.removed, done.archived, len(done.files)) == (1, 1, 1)
    with pytest.raises(ProcessNotFound):
        await engine.row(id)
    assert rehearse(tmp_path / "old", flow).fits
    assert [one.name for one in histories(tmp_path / "old")] == [f"{Path(done.files[0]).name}:sale:A-1"]
    target = Engine(f"sqlite:///{tmp_path}/elsewhere.db", migrate=True)
    async with target:
        with archive_opened(done.files[0]) as lines:
            assert (await target.archive.load(lines)).taken == 1
        row = await target.row(id)
        assert (row.status, row.result) == (Status.COMPLETED, b'"sent A-1"')
        assert [one.payload for one in await target.store.history(row.id, 1)] == [one.payload for one in events]


async def test_a_child_is_kept_until_its_parent_has_received_how_it_ended(opened: Open, tmp_path: Path) -> None:
    engine, _ = await opened(work=True, workflows=[root, leaf])
    client, _ = await opened(retention=[RetentionRule(kind="leaf", after=0, archive=tmp_path / "old")])
    parent = await engine.start(root, 7)
    await until_row(engine, parent.id, lambda row: row.awaiting == "signal go" and row.owner is None)
    assert (await client.retention.run()).removed == 1, "its parent has the result, and goes on without it"
    await parent.signal("go", "on")
    assert await parent.result(LIMIT) == 7
    assert (await client.retention.run()).removed == 0, "no rule fits the parent"


async def test_a_child_for_which_a_held_parent_waits_is_kept_and_told(opened: Open, tmp_path: Path) -> None:
    roots, _ = await opened(work=True, workflows=[root])
    parent = await roots.start(root, 7)
    held = await until_row(roots, parent.id, lambda row: row.awaiting is not None and row.owner is None)
    await parent.hold()
    leaves, _ = await opened(work=True, workflows=[leaf])
    [one] = await leaves.list(where="kind = leaf")
    await until_row(leaves, one.id, lambda row: row.status is Status.COMPLETED)
    client, _ = await opened(retention=[RetentionRule(kind="*", after=0, archive=tmp_path / "old")])
    [forecast] = await client.retention.preview()
    assert (forecast.processes, forecast.waiting) == (0, 1)
    done = await client.retention.run()
    assert (done.removed, done.archived, done.left, ids_in(tmp_path / "old")) == (0, 0, 1, Counter())
    await parent.resume()
    await until_row(roots, parent.id, lambda row: row.awaiting == "signal go" and row.owner is None)
    assert (await client.retention.run()).removed == 1, "a run looks again at what was left"
    assert (await roots.row(held.id)).status is Status.RUNNING


async def test_of_a_process_that_was_archived_twice_the_newer_line_counts_and_once(
    opened: Open, tmp_path: Path
) -> None:
    flow = code.sale()
    engine, _ = await opened(work=True, workflows=[flow])
    handle = await engine.start(flow.options(key="A-1"), "A-1")
    await handle.terminate()
    client, _ = await opened(retention=[RetentionRule(kind="sale", after=0, archive=tmp_path / "old")])
    other: Any = client.store

    async def retried(name: str, argument: object) -> None:
        if name == "prune":
            other.before = _nothing
            await handle.restart()

    other.before = retried
    assert (await client.retention.run()).removed == 0
    await handle.signal("packed", "now")
    assert await handle.result(LIMIT) == "sent A-1"
    done = await client.retention.run()
    assert (done.removed, ids_in(tmp_path / "old")) == (1, Counter({handle.id: 2}))
    assert rehearse(tmp_path / "old", flow).total == 1
    assert [one.id for one in histories(tmp_path / "old")] == [handle.id]
    async with Engine(f"sqlite:///{tmp_path}/elsewhere.db", migrate=True) as target:
        found = await target.archive.load(lines_in(tmp_path / "old"))
        assert (found.taken, found.there) == (1, 1)
        assert (await target.row(handle.id)).status is Status.COMPLETED


def lines_in(folder: Path) -> Iterator[bytes]:
    """All lines of the archive, in the order in which an import reads them."""
    for file in files(folder):
        with archive_opened(file) as lines:
            yield from lines


async def _nothing(name: str, argument: object) -> None:
    """Let every call through."""


async def test_what_cannot_be_opened_here_is_neither_archived_nor_removed(opened: Open, tmp_path: Path) -> None:
    flow = code.sale()
    codecs = [AesGcm({"k": "A" * 43 + "="})]
    engine, _ = await opened(work=True, workflows=[flow], codecs=codecs)
    id = await sold(engine, flow, "A-1")
    rules = [RetentionRule(kind="sale", after=0, archive=tmp_path / "old")]
    blind, _ = await opened(retention=rules)
    done = await blind.retention.run()
    assert (done.removed, done.archived, done.left) == (0, 0, 1)
    assert (await engine.row(id)).status is Status.COMPLETED
    client, _ = await opened(retention=rules, codecs=codecs)
    assert (await client.retention.run()).removed == 1
    assert ids_in(tmp_path / "old") == {id: 1}


async def test_a_program_killed_between_archive_and_removal_loses_no_process(
    opened: Open, store_url: str, tmp_path: Path
) -> None:
    flow = code.sale()
    engine, _ = await opened(work=True, workflows=[flow])
    ids = [await sold(engine, flow, f"A-{number}") for number in range(3)]
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.rehearsal.killed_retention", store_url, str(tmp_path / "old"),
        env={"PYTHONPATH": PYTHONPATH},
    )  # fmt: skip
    assert await program.wait() == -signal.SIGKILL
    assert ids_in(tmp_path / "old") == dict.fromkeys(ids, 1)
    assert {row.id for row in await engine.list()} == set(ids)
    client, _ = await opened(retention=[RetentionRule(after=0, archive=tmp_path / "old")])
    assert (await client.retention.run()).removed == 3
    assert ids_in(tmp_path / "old") == dict.fromkeys(ids, 2), "each line is there twice, in two whole files"
    assert await engine.list() == []


async def test_a_run_whose_archive_cannot_be_written_says_what_to_do(opened: Open, tmp_path: Path) -> None:
    flow = code.sale()
    (tmp_path / "file").write_text("no folder")
    engine, _ = await opened(work=True, workflows=[flow])
    id = await sold(engine, flow, "A-1")
    client, _ = await opened(retention=[RetentionRule(after=0, archive=tmp_path / "file")])
    with pytest.raises(ArchiveUnwritable, match="Make it writable, or give the rule another folder"):
        await client.retention.run()
    assert (await engine.row(id)).status is Status.COMPLETED


async def test_without_rules_there_is_nothing_to_show_or_to_run(opened: Open) -> None:
    engine, _ = await opened()
    assert (await engine.retention.list(), await engine.retention.preview()) == ([], [])
    assert await engine.retention.run() == RetentionRun()


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    whole = gzip.compress(b"{}\n" * 1000)
    for damaged in (whole[:-9], b"no gzip", whole[:20] + bytes(20) + whole[40:]):
        (tmp_path / "a.jsonl.gz").write_bytes(damaged)
        with pytest.raises(InvalidInput, match=r"a\.jsonl\.gz' is damaged|line 1"):
            list(histories(tmp_path))


async def test_rules_come_from_the_environment_the_file_and_the_program_in_this_order(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "perdure.toml").write_text('[[retention]]\nkind = "b"\nafter = "2d"\nstatus = ["failed"]\n')
    monkeypatch.setenv("PERDURE_RETENTION", '[{"kind": "a", "after": "never"}]')
    engine, _ = await opened(retention=[{"kind": "c", "after": 3}])
    assert [(rule.kind, rule.seconds) for rule in engine.retention.rules] == [("a", None), ("b", 172_800), ("c", 3)]
    for wrong in ("no JSON", '{"after": 1}', '[{"kind": "a"}]', "7"):
        monkeypatch.setenv("PERDURE_RETENTION", wrong)
        with pytest.raises(DefinitionError, match="PERDURE_RETENTION"):
            Engine("sqlite://:memory:", work=True)


def test_the_verbs_block_without_an_event_loop(sqlite_url: str) -> None:
    with BlockingEngine(sqlite_url, retention=[RetentionRule(after=0)]) as engine:
        assert len(engine.retention.list()) == len(engine.retention.preview()) == 1
        assert engine.retention.run().removed == 0
