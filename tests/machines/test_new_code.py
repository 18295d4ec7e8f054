"""New code of a machine: what has ended stays as the old code left it, and old fields become new ones."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from perdure import limits, machine
from perdure.errors import CallRefused, DefinitionError, WorkflowMisuse
from perdure.kernel.process import Status
from perdure.kernel.transition import released
from perdure.turns import verbs
from tests.runtime.conftest import Open, until_row


def meter(*, form: int, factor: int) -> Any:
    """The class of a meter, of that form, which multiplies what it counts."""
    if form == 1:

        class Old(machine.Machine, name="meter", version="1"):
            kilo: int = 0

            @machine.init
            def installed(self) -> None:
                pass

            @machine.call
            def add(self, amount: int) -> int:
                self.kilo += factor * amount
                return self.kilo

        return Old

    class New(machine.Machine, name="meter", version="1", form=2):
        watt: int = 0
        place: str = "cellar"

        @machine.init
        def installed(self) -> None:
            pass

        @machine.call
        def add(self, amount: int) -> int:
            self.watt += factor * amount
            return self.watt

        @machine.call
        def refuse(self) -> None:
            raise machine.Refusal("not today")

        @machine.signal
        def reset(self, watt: int) -> None:
            self.watt = watt

        @classmethod
        def upgraded(cls, fields: dict[str, Any], form: int) -> dict[str, Any]:
            assert form == 1
            return {"watt": fields["kilo"] * 1000}

    return New


async def test_what_has_ended_is_not_computed_anew_by_new_code(opened: Open) -> None:
    before, after = meter(form=1, factor=1), meter(form=1, factor=100)
    engine, _ = await opened(work=True, workflows=[before.installed])
    handle = await engine.start(before.installed)
    assert [await handle.call(before.add, 1), await handle.call(before.add, 1)] == [1, 2]
    await engine.close(0)
    again, _ = await opened(work=True, workflows=[after.installed])
    assert await again.process(handle.id).call(after.add, 1) == 102


async def test_fields_of_an_older_form_are_upgraded(opened: Open) -> None:
    before, after = meter(form=1, factor=1), meter(form=2, factor=1)
    engine, _ = await opened(work=True, workflows=[before.installed])
    handle = await engine.start(before.installed)
    assert await handle.call(before.add, 3) == 3
    await engine.close(0)
    again, _ = await opened(work=True, workflows=[after.installed])
    assert await again.process(handle.id).call(after.add, 1) == 3001
    row = await until_row(again, handle.id, lambda row: b'"place":"cellar"' in row.state)
    assert b'"form":2' in row.state


async def test_a_call_that_is_refused_right_after_an_upgrade_loses_no_fields(opened: Open) -> None:
    before, after = meter(form=1, factor=1), meter(form=2, factor=1)
    engine, _ = await opened(work=True, workflows=[before.installed])
    handle = await engine.start(before.installed)
    assert await handle.call(before.add, 3) == 3
    await engine.close(0)
    again, _ = await opened(work=True, workflows=[after.installed])
    with pytest.raises(CallRefused, match="not today"):
        await again.process(handle.id).call(after.refuse)
    assert await again.process(handle.id).call(after.add, 1) == 3001


async def test_a_signal_that_does_not_fit_right_after_an_upgrade_loses_no_fields(opened: Open) -> None:
    before, after = meter(form=1, factor=1), meter(form=2, factor=1)
    engine, _ = await opened(work=True, workflows=[before.installed])
    handle = await engine.start(before.installed)
    assert await handle.call(before.add, 3) == 3
    await engine.close(0)
    upgrading, _ = await opened(work=True, workflows=[after.installed])
    await upgrading.process(handle.id).signal("reset", ["much"])
    row = await until_row(upgrading, handle.id, lambda row: b'"form":2' in row.state)
    assert b'"watt":3000' in row.state
    await upgrading.close(0)
    loaded_anew, _ = await opened(work=True, workflows=[after.installed])
    assert await loaded_anew.process(handle.id).call(after.add, 1) == 3001


async def test_a_machine_that_folds_its_history_right_after_an_upgrade_loses_no_fields(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = meter(form=1, factor=1), meter(form=2, factor=1)
    engine, _ = await opened(work=True, workflows=[before.installed])
    handle = await engine.start(before.installed)
    assert [await handle.call(before.add, 1) for _ in range(3)] == [1, 2, 3]
    run = (await engine.row(handle.id)).run
    await engine.close(0)
    monkeypatch.setattr(limits, "FOLDED_TURNS", 3)
    again, _ = await opened(work=True, workflows=[after.installed])
    assert await again.process(handle.id).call(after.add, 1) == 3001
    assert (await again.row(handle.id)).run == run + 1


async def test_fields_that_new_code_cannot_read_break_the_machine_and_lose_nothing(opened: Open) -> None:
    before, after = meter(form=1, factor=1), meter(form=2, factor=1)
    after.upgraded = classmethod(lambda cls, fields, form: {"watt": "much"})
    engine, _ = await opened(work=True, workflows=[before.installed])
    handle = await engine.start(before.installed)
    assert await handle.call(before.add, 3) == 3
    await engine.close(0)
    wrong, _ = await opened(work=True, workflows=[after.installed])
    await wrong.process(handle.id).signal("nothing that it hears")
    row = await until_row(wrong, handle.id, lambda row: row.status is Status.BROKEN)
    assert b"watt" in (row.error or b"") and b'"kilo":3' in (row.state or b"")
    await wrong.close(0)
    mended, _ = await opened(work=True, workflows=[before.installed])
    await mended.process(handle.id).retry()
    assert await mended.process(handle.id).call(before.add, 1) == 4


async def test_a_machine_whose_state_is_damaged_is_parked_and_can_be_ended(opened: Open, store_url: str) -> None:
    before = meter(form=1, factor=1)
    engine, store = await opened(work=True, workflows=[before.installed])
    handle = await engine.start(before.installed)
    assert await handle.call(before.add, 3) == 3
    await engine.close(0)
    client, store = await opened()
    row = await client.row(handle.id)
    await store.commit([released(replace(row, state=b'{"@machine":{"run":"one"},"kilo":3}'), due_at=0)])
    worker, _ = await opened(work=True, workflows=[before.installed])
    await until_row(worker, handle.id, lambda row: row.status is Status.BROKEN)
    assert (await worker.process(handle.id).status()).status is Status.BROKEN
    await worker.process(handle.id).terminate(who="Bob")
    assert (await worker.row(handle.id)).status is Status.CANCELLED


def test_a_machine_that_cannot_be_is_refused_where_it_is_defined() -> None:
    def define(fields: dict[str, Any]) -> None:
        type("Wrong", (machine.Machine,), {"__module__": __name__, "__qualname__": "Wrong", **fields})

    def begun(self: Any) -> None: ...

    beginning = machine.init(begun)
    for fields, text in (
        ({"begun": beginning, "__init__": begun}, "has an __init__"),
        ({"begun": beginning, "one": machine.timer(begun), "__annotations__": {"x": "Nowhere"}}, "'Nowhere'"),
        ({"begun": beginning, "__annotations__": {"x": list[int]}, "x": [1]}, r"Use machine\.field"),
        ({"begun": beginning, "more": machine.call(lambda self, *rest: None)}, "Name each parameter"),
    ):
        with pytest.raises(DefinitionError, match=text):
            define(fields)
    with pytest.raises(DefinitionError, match=r"two methods @machine\.timer"):

        class Twice(machine.Machine):
            @machine.init
            def begun(self) -> None: ...

            @machine.timer
            def one(self) -> None: ...

            @machine.timer
            def two(self) -> None: ...


def test_the_actions_belong_into_a_machine_and_no_state_looks_like_its_own() -> None:
    for act in (
        machine.suspend,
        machine.run_now,
        machine.complete,
        lambda: machine.schedule(1),
        lambda: machine.fail(OSError()),
    ):
        with pytest.raises(WorkflowMisuse):
            act()
    with pytest.raises(WorkflowMisuse, match="state of a machine"):
        verbs.set_state({"@machine": {}})


async def test_the_beginning_of_a_machine_may_use_what_stands_around_its_class(opened: Open) -> None:
    first = 7

    class Counter(machine.Machine):
        count: int = 0

        @machine.init
        def begun(self) -> None:
            self.count = first

        @machine.call
        def told(self) -> int:
            return self.count

    engine, _ = await opened(work=True)
    assert await (await engine.start(Counter.begun)).call(Counter.told) == 7
