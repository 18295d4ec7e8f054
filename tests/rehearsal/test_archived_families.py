"""Parents and their children on the way into another database: who waits for whom there, and what is told of it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from perdure.kernel import archive
from perdure.kernel.child import ChildBegun
from perdure.kernel.names import id_bytes, id_text
from perdure.store.sealed.codec import AesGcm
from tests.rehearsal import code
from tests.rehearsal.test_archive import a_sale, line_of, lines_of, until_children
from tests.runtime.conftest import LIMIT, Open


async def test_a_parent_of_very_many_children_hears_of_the_last_one_too(opened: Open, elsewhere: Open) -> None:
    source, _ = await elsewhere(work=True, workflows=[code.delivery, code.parcel])
    parent = await source.start(code.delivery, "A-1")
    [child] = await until_children(source, "parcel", 1)
    lines = await lines_of(source, "kind = delivery")
    await source.close(0)
    target, _ = await opened(work=True, workflows=[code.parcel])
    assert (await target.archive.load(lines[1:])).complete
    await target.process(child).signal("go", "now")
    assert await target.process(child).result(LIMIT) == "packed A-1"
    found = await target.archive.load([with_more_children(lines[0], 10_000)])
    assert (found.taken, found.refused, found.waiting) == (1, [], [parent.id])
    [message] = await target.store.messages([(id_bytes(parent.id), 0)])
    assert message.id == id_bytes(child)


def with_more_children(line: bytes, many: int) -> bytes:
    """The line of a parent that has started so many children before its last one; they exist nowhere."""
    one = archive.read(line)
    *events, started = one.events
    for number in range(many):
        nobody = ChildBegun(id_text(number.to_bytes(16, "big"))).encode()
        events.append(replace(started, number=started.number + number, place=f"{2 + number}", payload=nobody))
    events.append(replace(started, number=started.number + many))
    return line_of(replace(one.process, events=len(events)), replace(one, events=tuple(events)))


async def test_a_parent_whose_child_is_missing_is_told(opened: Open, elsewhere: Open) -> None:
    source, _ = await elsewhere(work=True, workflows=[code.delivery, code.parcel])
    parent = await source.start(code.delivery, "A-1")
    await until_children(source, "parcel", 1)
    lines = await lines_of(source, "kind = delivery")
    target, _ = await opened()
    found = await target.archive.load(lines[:1])
    assert (found.taken, found.waiting, found.complete) == (1, [parent.id], False)
    found = await target.archive.load(lines)
    assert (found.taken, found.there, found.waiting) == (1, 1, [])


async def test_a_parent_that_has_ended_here_waits_for_nobody(opened: Open, elsewhere: Open) -> None:
    flows = [code.delivery, code.parcel]
    source, _ = await elsewhere(work=True, workflows=flows)
    parent = await source.start(code.delivery, "A-1")
    [child] = await until_children(source, "parcel", 1)
    lines = await lines_of(source, "kind = delivery")
    await source.close(0)
    target, _ = await opened(work=True, workflows=flows)
    assert (await target.archive.load(lines)).complete
    await target.process(child).signal("go", "now")
    assert await target.process(parent.id).result(LIMIT) == "packed A-1"
    await target.process(child).remove()
    found = await target.archive.load(lines[:1])
    assert (found.taken, found.there, found.complete) == (0, 1, True)


async def test_a_parent_whose_children_are_sealed_stops_neither_export_nor_import(
    opened: Open, elsewhere: Open, caplog: pytest.LogCaptureFixture
) -> None:
    flows, keys = [code.delivery, code.parcel, code.sale()], [AesGcm({"k": bytes(32)})]
    source, _ = await elsewhere(work=True, workflows=flows, codecs=keys)
    sale = await a_sale(source, flows[2], "A-1")
    parent = await source.start(code.delivery, "A-1")
    [child] = await until_children(source, "parcel", 1)
    every = await lines_of(source)
    await source.close(0)
    blind, _ = await elsewhere()
    lines = await lines_of(blind, "kind in (delivery, sale)")
    assert [archive.read(line).process.kind for line in lines] == ["delivery", "sale"]
    assert f"not all children of process {parent.id} follow it" in caplog.text
    target, _ = await opened()
    found = await target.archive.load(lines)
    assert (found.taken, found.unknown, found.waiting, found.complete) == (2, [parent.id], [], False)
    able, _ = await opened(work=True, workflows=flows, codecs=keys)
    found = await able.archive.load([line for line in every if archive.read(line).process.kind != "delivery"])
    assert (found.taken, found.there, found.complete) == (1, 1, True)
    await able.process(child).signal("go", "now")
    assert await able.process(child).result(LIMIT) == "packed A-1"
    found = await able.archive.load(lines)
    assert (found.there, found.unknown, found.complete) == (2, [], True)
    assert await able.process(parent.id).result(LIMIT) == "packed A-1"
    await able.process(sale.id).terminate()
