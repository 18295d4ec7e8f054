"""A repeated start has an equal input if only the keys of its objects come in another order."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import Engine, receive, workflow
from perdure.errors import KeyConflict
from perdure.store.sealed.codec import AesGcm
from tests.runtime.conftest import LIMIT, Open, until_row

ORDER = {"id": "A-1", "lines": [{"item": "bowl", "number": 2}], "{": 1}
TURNED = {"{": 1, "lines": [{"number": 2, "item": "bowl"}], "id": "A-1"}
OTHER = {"{": 1, "lines": [{"number": 3, "item": "bowl"}], "id": "A-1"}


@workflow(name="sending", version="1")
async def sending(order: dict[str, Any]) -> list[str]:
    await receive("packed")
    return list(order)


async def refused(engine: Engine, order: dict[str, Any]) -> None:
    with pytest.raises(KeyConflict, match="another input"):
        await engine.start(sending.options(key="A-1"), order)


@pytest.mark.parametrize("codecs", [(), (AesGcm({"k": bytes(32)}),)], ids=["open", "sealed"])
async def test_the_order_of_keys_makes_no_other_input_and_the_first_one_stays(opened: Open, codecs: Any) -> None:
    engine, _ = await opened(work=True, workflows=[sending], codecs=list(codecs))
    first = await engine.start(sending.options(key="A-1"), ORDER)
    again = await engine.start(sending.options(key="A-1", signal=("packed", None)), TURNED)
    assert (again.id, again.created) == (first.id, False)
    await refused(engine, OTHER)
    assert await first.result(LIMIT) == list(ORDER)


async def test_many_starts_are_compared_in_the_same_way(opened: Open) -> None:
    engine, _ = await opened(workflows=[sending])
    keys = ["A-1", "A-2"]
    first = await engine.start_many(sending, [(ORDER,), (ORDER,)], keys=keys)
    again = await engine.start_many(sending, [(TURNED,), (ORDER,), (TURNED,)], keys=[*keys, "A-3"])
    assert [one.id for one in again[:2]] == [one.id for one in first]
    assert [one.created for one in again] == [False, False, True]
    with pytest.raises(KeyConflict, match="another input"):
        await engine.start_many(sending, [(TURNED,), (OTHER,)], keys=keys)


async def test_of_a_pruned_process_nothing_is_left_to_compare_but_its_bytes(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[sending])
    first = await engine.start(sending.options(key="A-1", signal=("packed", None)), ORDER)
    await first.result(LIMIT)
    await until_row(engine, first.id, lambda row: row.final and row.owner is None)
    assert (await engine.store.prune(-1_000_000, 86_400_000_000, 10)).processes == 1
    assert not (await engine.start(sending.options(key="A-1"), ORDER)).created
    await refused(engine, TURNED)
