"""Processes written to lines and taken over from them: as they were, once each, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import json
from msgspec.structs import replace

from perdure import Engine, Search, Status
from perdure.client import archive as client_archive
from perdure.errors import InvalidInput
from perdure.kernel import archive
from perdure.kernel.soundness import unsound
from perdure.store.sealed.codec import AesGcm
from perdure.store.sealed.offload import Folder
from perdure.testing import histories, rehearse
from tests.rehearsal import code
from tests.runtime.conftest import LIMIT, Open, until_row


async def lines_of(engine: Engine, *args: Any, **settings: Any) -> list[bytes]:
    return [line async for line in engine.archive.export(*args, **settings)]


async def a_sale(engine: Engine, flow: Any, order: str) -> Any:
    """A sale that waits, and that no worker holds."""
    handle = await engine.start(flow.options(key=order, attributes={"card": "number 4711", "shop": 7}), order)
    await until_row(engine, handle.id, lambda row: row.awaiting == "signal packed" and row.owner is None)
    return handle


async def sound(engine: Engine, id: str) -> Any:
    """The row of a process, whose records keep every law."""
    row = await engine.row(id)
    events = await engine.store.history(row.id, row.run)
    messages = await engine.store.messages([(row.id, 0)]) if row.inbox else []
    assert unsound(row, events, messages, await engine.store.now()) == []
    return row


STAYS = (
    "id", "kind", "key", "code", "status", "run", "input", "result", "error", "state", "events", "inbox", "seen",
    "parent", "created_at", "opened_at", "deadline", "priority",
)  # fmt: skip


async def test_an_ended_process_is_taken_over_as_it_was_and_once(opened: Open, elsewhere: Open) -> None:
    flow = code.sale()
    source, _ = await elsewhere(work=True, workflows=[flow])
    handle = await a_sale(source, flow, "A-1")
    await handle.signal("packed", "now", key="S-1")
    assert await handle.result(LIMIT) == "sent A-1"
    lines = await lines_of(source)
    target, _ = await opened(work=True, workflows=[flow])
    found = await target.archive.load(lines)
    assert (found.taken, found.there, found.complete) == (1, 0, True)
    before, after = await source.row(handle.id), await sound(target, handle.id)
    assert [getattr(before, name) for name in STAYS] == [getattr(after, name) for name in STAYS]
    assert json.decode(before.attributes or b"") == json.decode(after.attributes or b"")
    for old, new in zip(
        await source.store.history(before.id, 1), await target.store.history(before.id, 1), strict=True
    ):
        assert replace(old, token=0, version=0) == replace(new, token=0, version=0)
    again = await target.handle("sale", "A-1")
    assert await again.result(LIMIT) == "sent A-1"
    found = await target.archive.load(lines)
    assert (found.taken, found.there, found.complete) == (0, 1, True)
    assert code.done == {"charge A-1": 1, "ship A-1": 1}


async def test_an_unfinished_process_goes_on_with_what_has_reached_it(opened: Open, elsewhere: Open) -> None:
    flow = code.sale()
    source, _ = await elsewhere(work=True, workflows=[flow])
    waits, told = await a_sale(source, flow, "A-1"), await a_sale(source, flow, "A-2")
    await told.hold(why="it moves")
    await told.signal("packed", "early", key="S-1")
    lines = await lines_of(source)
    await source.close(0)
    target, _ = await opened(work=True, workflows=[flow])
    assert (await target.archive.load(lines)).taken == 2
    held = await sound(target, told.id)
    assert (held.status, held.reminder, held.inbox - held.seen) == (Status.HELD, True, 1)
    there = target.process(told.id)
    assert await there.signal("packed", "late", key="S-1") is not None, "the same signal counts once"
    await there.resume()
    assert await there.result(LIMIT) == "sent A-2"
    await sound(target, waits.id)
    await target.process(waits.id).signal("packed", "now")
    assert await target.process(waits.id).result(LIMIT) == "sent A-1"
    assert code.done == {"charge A-1": 1, "charge A-2": 1, "ship A-1": 1, "ship A-2": 1}


async def test_children_and_queued_steps_follow_their_parents(opened: Open, elsewhere: Open) -> None:
    flows = [code.delivery, code.parcel]
    source, _ = await elsewhere(work=True, workflows=flows, queues=[])
    parent = await source.start(code.delivery, "A-1")
    [child] = await until_children(source, "parcel", 1)
    await source.process(child).signal("go", "now")
    await until_children(source, "@packing", 1)
    lines = await lines_of(source, "kind = delivery")
    assert [json.decode(line)["record"]["process"]["kind"] for line in lines] == ["delivery", "parcel", "@packing"]
    await source.close(0)
    target, _ = await opened(work=True, workflows=flows)
    found = await target.archive.load(reversed(lines))
    assert (found.taken, found.complete) == (3, True)
    assert await target.process(parent.id).result(LIMIT) == "packed A-1"
    assert code.done == {"charge A-1": 1, "pack A-1": 1}


async def until_children(engine: Engine, kind: str, many: int) -> list[str]:
    """The ids of the processes of a kind, once there are so many."""
    async with asyncio.timeout(LIMIT):
        while len(found := await engine.list(Search(kind=kind))) < many:
            await asyncio.sleep(0.002)
    return [one.id for one in found]


async def test_a_child_that_ends_before_its_parent_is_here_answers_it_all_the_same(
    opened: Open, elsewhere: Open
) -> None:
    flows = [code.delivery, code.parcel]
    source, _ = await elsewhere(work=True, workflows=flows)
    parent = await source.start(code.delivery, "A-1")
    [child] = await until_children(source, "parcel", 1)
    lines = await lines_of(source, "kind = delivery")
    await source.close(0)
    target, _ = await opened(work=True, workflows=flows)
    assert (await target.archive.load(lines[1:])).complete
    await target.process(child).signal("go", "now")
    assert await target.process(child).result(LIMIT) == "packed A-1"
    assert (await target.archive.load(lines[:1])).complete
    assert await target.process(parent.id).result(LIMIT) == "packed A-1"


async def test_a_line_that_stands_twice_is_taken_once(opened: Open, elsewhere: Open) -> None:
    flow = code.sale()
    source, _ = await elsewhere(work=True, workflows=[flow])
    for order in ("A-1", "A-2"):
        await a_sale(source, flow, order)
    lines = await lines_of(source)
    target, _ = await opened()
    found = await target.archive.load([*lines, *lines])
    assert (found.taken, found.there, found.complete) == (2, 2, True)


async def test_a_machine_goes_on_with_its_fields(opened: Open, elsewhere: Open) -> None:
    shelf = code.shelf()
    source, _ = await elsewhere(work=True, workflows=[shelf.built])
    handle = await source.start(shelf.built)
    assert [await handle.call(shelf.put.options(key=f"K-{n}"), n) for n in (12, 24)] == [12, 36]
    await until_row(source, handle.id, lambda row: row.owner is None)
    lines = await lines_of(source)
    await source.close(0)
    target, _ = await opened(work=True, workflows=[shelf.built])
    assert (await target.archive.load(lines)).complete
    there = target.process(handle.id)
    assert await there.call(shelf.put.options(key="K-24"), 24) == 36, "answered before"
    assert await there.call(shelf.put, 1) == 37
    await sound(target, handle.id)


async def test_a_damaged_line_is_told_with_its_number_and_nothing_of_it_is_taken(opened: Open, elsewhere: Open) -> None:
    flow = code.sale()
    source, _ = await elsewhere(work=True, workflows=[flow])
    for order in ("A-1", "A-2", "A-3", "A-4"):
        await a_sale(source, flow, order)
    good, changed, cut, newer = await lines_of(source)
    spoilt = [good, changed.replace(b"paid A-3", b"paid B-3"), cut[:-9], newer.replace(b'"perdure":1', b'"perdure":2')]
    target, _ = await opened()
    found = await target.archive.load(spoilt)
    assert found.taken == 1 and [one.line for one in found.refused] == [2, 3, 4]
    assert "changed after it was written" in found.refused[0].why
    assert "was cut" in found.refused[1].why
    assert "has form 2" in found.refused[2].why
    assert [row.key for row in await target.list()] == ["A-4"]


async def test_an_id_or_a_key_that_is_taken_here_is_refused(opened: Open, elsewhere: Open) -> None:
    flow = code.sale()
    source, _ = await elsewhere(work=True, workflows=[flow])
    moved = await a_sale(source, flow, "A-1")
    lines = await lines_of(source)
    target, _ = await opened(work=True, workflows=[flow])
    holder = await a_sale(target, flow, "A-1")
    [refused] = (await target.archive.load(lines)).refused
    assert refused.process == moved.id and f"its key 'A-1' belongs to process {holder.id} here" in refused.why
    await holder.terminate()
    await holder.release_key()
    other = archive.read(lines[0])
    row = replace(other.process, id=bytes.fromhex(holder.id.replace("-", "")))
    [refused] = (await target.archive.load([line_of(row, other)])).refused
    assert f"the id {holder.id} belongs to another process here" in refused.why
    assert (await target.archive.load(lines)).taken == 1


def line_of(row: Any, like: archive.Archived) -> bytes:
    return archive.written(archive.record_of(row, like.events, like.messages))


async def test_an_import_that_was_broken_off_goes_on_without_doubles(
    opened: Open, elsewhere: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_archive, "AT_ONCE", 2)
    flow = code.sale()
    source, _ = await elsewhere(work=True, workflows=[flow])
    for n in range(5):
        await a_sale(source, flow, f"A-{n}")
    lines = await lines_of(source)
    await source.close(0)
    target, _ = await opened(work=True, workflows=[flow])

    async def broken_off() -> AsyncIterator[bytes]:
        for line in lines[:3]:
            yield line
        raise ConnectionError("the file is gone")

    with pytest.raises(ConnectionError):
        await target.archive.load(broken_off())
    assert len(await target.list()) == 2
    found = await target.archive.load(lines)
    assert (found.taken, found.there, found.complete) == (3, 2, True)
    for row in await target.list():
        await target.process(row.id).signal("packed", "now")
        await target.process(row.id).result(LIMIT)
    assert set(code.done.values()) == {1}


async def test_a_redacted_line_holds_nothing_of_what_was_redacted(opened: Open, elsewhere: Open) -> None:
    flow = code.sale()
    source, _ = await elsewhere(work=True, workflows=[flow])
    handle = await a_sale(source, flow, "secret")
    parts = ["input", "attributes.card", "events", "messages"]
    [line] = await lines_of(source, redact=parts)
    assert b"number 4711" not in line and line.count(b"secret") == line.count(b'"key":"secret"') == 1
    assert json.decode(line)["record"]["process"]["attributes"] == {"card": "redacted", "shop": 7}
    target, _ = await opened(workflows=[flow])
    [refused] = (await target.archive.load([line])).refused
    assert "would go on with redacted values (input, attributes.card, events, messages)" in refused.why
    await handle.signal("packed", "now")
    await handle.result(LIMIT)
    [line] = await lines_of(source, redact=[*parts, "result"])
    assert b"sent secret" not in line
    assert (await target.archive.load([line])).taken == 1
    assert (await sound(target, handle.id)).result == b'"redacted"'
    with pytest.raises(InvalidInput, match="'colour' cannot be redacted"):
        await lines_of(source, redact=["colour"])


@pytest.mark.parametrize("path", ["input.order.card", "input.card", "input.crad", "input.0.card", "input"])
async def test_no_card_of_an_input_is_left_whichever_way_it_is_named(opened: Open, path: str) -> None:
    engine, _ = await opened(workflows=[code.paid])
    handle = await engine.start(code.paid.options(delay=3600), {"id": "A-1", "card": "number 4711"}, gift="B-2")
    await handle.edit_input([{"id": "A-1", "card": "number 4711-2"}], {"gift": "B-2"})
    [line] = await lines_of(engine, redact=[path])
    assert b"4711" not in line and json.decode(line)["record"]["redacted"] == [path]
    assert (b'"id":"A-1"' in line) is (path in ("input.order.card", "input.0.card"))


async def test_a_function_redacts(elsewhere: Open) -> None:
    flow = code.sale()
    source, _ = await elsewhere(work=True, workflows=[flow])
    await a_sale(source, flow, "A-1")
    asked: list[tuple[str, Any]] = []

    def redact(part: str, value: Any) -> Any:
        asked.append((part, value))
        return "0000"

    [line] = await lines_of(source, redact=["attributes.card"], redact_with=redact)
    assert asked == [("attributes.card", "number 4711")]
    assert json.decode(line)["record"]["process"]["attributes"] == {"card": "0000", "shop": 7}


async def test_what_is_sealed_is_moved_sealed_by_who_has_no_keys(opened: Open, elsewhere: Open) -> None:
    flow = code.sale()
    keys = [AesGcm({"k": bytes(32)})]
    source, _ = await elsewhere(work=True, workflows=[flow], codecs=keys)
    handle = await a_sale(source, flow, "secret")
    await source.close(0)
    blind, _ = await elsewhere()
    [line] = await lines_of(blind)
    assert b"paid" not in line
    first, _ = await opened()
    assert (await first.archive.load([line])).complete
    target, _ = await opened(work=True, workflows=[flow], codecs=keys)
    await target.process(handle.id).signal("packed", "now")
    assert await target.process(handle.id).result(LIMIT) == "sent secret"
    assert code.done["charge secret"] == 1


async def test_a_sealed_line_is_refused_where_codecs_are_and_the_others_are_taken(
    opened: Open, elsewhere: Open
) -> None:
    flow = code.sale()
    keys = [AesGcm({"k": bytes(32)})]
    source, _ = await elsewhere(work=True, workflows=[flow], codecs=keys)
    handle = await a_sale(source, flow, "secret")
    plain = await a_sale(source, flow, "plain")
    both = await lines_of(source)
    await source.close(0)
    blind, _ = await elsewhere()
    [sealed] = await lines_of(blind, "key = secret")
    lines = [sealed, *(line for line in both if b'"key":"plain"' in line)]
    target, _ = await opened(work=True, workflows=[flow], codecs=keys)
    found = await target.archive.load(lines)
    assert (found.taken, [(one.line, one.process) for one in found.refused]) == (1, [(1, handle.id)])
    assert "import this line once without codecs (PERDURE_SEAL unset)" in found.refused[0].why
    await target.process(plain.id).signal("packed", "now")
    assert await target.process(plain.id).result(LIMIT) == "sent plain"
    [refused] = (await target.archive.load([sealed], copy="trial")).refused
    assert "export it where its codecs are" in refused.why
    first, _ = await opened()
    assert (await first.archive.load(lines)).complete
    await target.process(handle.id).signal("packed", "now")
    assert await target.process(handle.id).result(LIMIT) == "sent secret"


async def test_what_is_kept_outside_the_database_is_in_its_line(opened: Open, elsewhere: Open, tmp_path: Path) -> None:
    flow, large = code.sale(), "A-1" * 1000
    source, _ = await elsewhere(work=True, workflows=[flow], offload=Folder(tmp_path / "blobs", above=100))
    handle = await source.start(flow, large)
    await until_row(source, handle.id, lambda row: row.awaiting == "signal packed" and row.owner is None)
    lines = await lines_of(source)
    await source.close(0)
    target, _ = await opened(work=True, workflows=[flow])
    assert (await target.archive.load(lines)).complete
    await target.process(handle.id).signal("packed", "now")
    assert await target.process(handle.id).result(LIMIT) == f"sent {large}"


async def test_a_copy_goes_on_by_itself_and_is_made_once(opened: Open) -> None:
    flow = code.sale()
    engine, _ = await opened(work=True, workflows=[flow])
    handle = await engine.start(flow, "A-1")
    await until_row(engine, handle.id, lambda row: row.awaiting == "signal packed" and row.owner is None)
    lines = await lines_of(engine)
    assert (await engine.archive.load(lines, copy="trial")).taken == 1
    found = await engine.archive.load(lines, copy="trial")
    assert (found.taken, found.there) == (0, 1)
    [copy] = [row.id for row in await engine.list() if row.id != handle.id]
    await engine.process(copy).signal("packed", "now")
    assert await engine.process(copy).result(LIMIT) == "sent A-1"
    assert (await engine.row(handle.id)).status is Status.RUNNING
    assert code.done == {"charge A-1": 1, "ship A-1": 1}
    [refused] = (await engine.archive.load(await lines_of(engine, "status = completed"), copy="again")).refused
    assert "only a process that goes on is copied" in refused.why


async def test_an_exported_history_is_rehearsed_without_a_database(elsewhere: Open, tmp_path: Path) -> None:
    flow = code.sale()
    source, _ = await elsewhere(work=True, workflows=[flow])
    for order in ("A-1", "A-2"):
        await a_sale(source, flow, order)
    folder = tmp_path / "histories"
    folder.mkdir()
    (folder / "sales.jsonl").write_bytes(b"".join(await lines_of(source)))
    assert [one.name for one in histories(folder)] == ["sales.jsonl:sale:A-2", "sales.jsonl:sale:A-1"]
    rehearse(folder, flow).check()
    found = rehearse(folder / "sales.jsonl", code.sale("misfitting"))
    assert (found.total, found.unfit) == (2, 2)
    [first, _] = histories(folder)
    assert not first.rehearse(code.sale("misfitting")).fits
    with pytest.raises(InvalidInput, match="no file with processes"):
        rehearse(tmp_path / "nothing", flow)
