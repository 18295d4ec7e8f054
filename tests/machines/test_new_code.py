"""New code of a machine: what has ended stays as the old code left it, and old fields become new ones."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from msgspec.structs import replace

from perdure import Handle, limits, machine
from perdure.errors import CallRefused, DefinitionError, WorkflowMisuse
from perdure.kernel.process import Status
from perdure.kernel.transition import released
from perdure.runtime.options import WorkerOptions
from perdure.turns import verbs
from tests.runtime.conftest import LIMIT, Open, until, until_row


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


async def left_at_three(opened: Open, kind: Any) -> Handle[Any]:
    """A meter of that class, which stands at three, and whose worker is gone."""
    engine, _ = await opened(work=True, workflows=[kind.installed])
    handle = await engine.start(kind.installed)
    assert await handle.call(kind.add, 3) == 3
    await engine.close(0)
    return handle


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
    handle = await left_at_three(opened, before)
    again, _ = await opened(work=True, workflows=[after.installed])
    assert await again.process(handle.id).call(after.add, 1) == 3001
    row = await until_row(again, handle.id, lambda row: b'"place":"cellar"' in row.state)
    assert b'"form":2' in row.state


async def test_a_call_that_is_refused_right_after_an_upgrade_loses_no_fields(opened: Open) -> None:
    before, after = meter(form=1, factor=1), meter(form=2, factor=1)
    handle = await left_at_three(opened, before)
    again, _ = await opened(work=True, workflows=[after.installed])
    with pytest.raises(CallRefused, match="not today"):
        await again.process(handle.id).call(after.refuse)
    assert await again.process(handle.id).call(after.add, 1) == 3001


async def test_a_signal_that_does_not_fit_right_after_an_upgrade_loses_no_fields(opened: Open) -> None:
    before, after = meter(form=1, factor=1), meter(form=2, factor=1)
    handle = await left_at_three(opened, before)
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
    handle = await left_at_three(opened, before)
    wrong, _ = await opened(work=True, workflows=[after.installed])
    await wrong.process(handle.id).signal("nothing that it hears")
    row = await until_row(wrong, handle.id, lambda row: row.status is Status.BROKEN)
    assert b"watt" in (row.error or b"") and b'"kilo":3' in (row.state or b"")
    await wrong.close(0)
    mended, _ = await opened(work=True, workflows=[before.installed])
    await mended.process(handle.id).retry()
    assert await mended.process(handle.id).call(before.add, 1) == 4


async def test_fields_of_a_newer_form_are_left_to_a_worker_with_newer_code(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HANDOVER_FIRST_SECONDS", 0.01)
    monkeypatch.setattr(limits, "HANDOVER_LONGEST_SECONDS", 0.02)
    before, after = meter(form=1, factor=1), meter(form=2, factor=1)
    handle = await left_at_three(opened, after)
    brief = WorkerOptions(lease_seconds=0.4, beat_seconds=0.1)  # with a message unheard, it is left until that lapses
    old, _ = await opened(work=True, workflows=[before.installed], options=brief)
    waiting = asyncio.create_task(old.process(handle.id).call("add", [4]))
    await until(lambda: old.telemetry.counters["processes_handed_over"])
    assert b'"watt":3' in ((await old.row(handle.id)).state or b"")
    await opened(work=True, workflows=[after.installed])
    assert await asyncio.wait_for(waiting, LIMIT) == 7
    assert old.telemetry.counters["broken"] == 0


async def test_fields_of_a_newer_form_that_no_worker_takes_are_shown_to_a_person_and_stay(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HANDOVER_ALONE_SECONDS", 0.0)
    before, after = meter(form=1, factor=1), meter(form=2, factor=1)
    handle = await left_at_three(opened, after)
    old, _ = await opened(work=True, workflows=[before.installed])
    await old.process(handle.id).signal("anything")
    row = await until_row(old, handle.id, lambda row: row.status is Status.BROKEN)
    assert b"fields of form 2, but the code reads form 1 at most" in (row.error or b"")
    assert b'"watt":3' in (row.state or b"")


def counter(*, grown: bool) -> Any:
    """The class of a counter; ``grown`` it has one field more, of the same form."""

    class Counter(machine.Machine, name="counter", version="1"):
        n: int = 0
        if grown:
            bonus: int = 0

        @machine.init
        def begun(self) -> None:
            pass

        @machine.call
        def add(self, amount: int) -> list[int]:
            self.n += amount
            if grown:
                self.bonus += 10 * amount
            return [self.n, self.bonus if grown else -1]

        @machine.call
        def refuse(self) -> None:
            raise machine.Refusal("not today")

    return Counter


async def test_old_code_keeps_a_field_that_newer_code_has_added(opened: Open) -> None:
    before, after = counter(grown=False), counter(grown=True)
    engine, _ = await opened(work=True, workflows=[after.begun])
    handle = await engine.start(after.begun)
    assert await handle.call(after.add, 1) == [1, 10]
    await engine.close(0)
    for expected in (2, 3):  # the second time it is loaded from what old code has written
        old, _ = await opened(work=True, workflows=[before.begun])
        with pytest.raises(CallRefused, match="not today"):
            await old.process(handle.id).call("refuse", [])
        assert await old.process(handle.id).call("add", [1]) == [expected, -1]
        await old.close(0)
    again, _ = await opened(work=True, workflows=[after.begun])
    assert await again.process(handle.id).call(after.add, 1) == [4, 20]


def reminder(*, timer: bool) -> Any:
    """The class of a reminder; with ``timer`` it has the method that is to run when the time comes."""

    class Base(machine.Machine, name="reminder", version="1"):
        rung: int = 0

        @machine.init
        def begun(self) -> None:
            if timer:
                machine.schedule(3600)

        if timer:

            @machine.timer
            def ring(self) -> None:
                self.rung += 1

    return Base


async def test_a_time_for_which_new_code_has_no_method_breaks_the_machine_and_is_kept_for_better_code(
    opened: Open,
) -> None:
    before, after = reminder(timer=True), reminder(timer=False)
    engine, _ = await opened(work=True, workflows=[before.begun])
    handle = await engine.start(before.begun)
    row = await until_row(engine, handle.id, lambda row: row.state is not None and row.owner is None)
    await engine.close(0)
    client, store = await opened()
    early = re.sub(rb'"due":\d+', b'"due":1', row.state)  # its time has come
    await store.commit([released(replace(await client.row(handle.id), state=early), due_at=0)])
    without, _ = await opened(work=True, workflows=[after.begun])
    row = await until_row(without, handle.id, lambda row: row.status is not Status.RUNNING)
    assert row.status is Status.BROKEN and b"marked @machine.timer: it has none" in (row.error or b"")
    await without.close(0)
    better, _ = await opened(work=True, workflows=[before.begun])
    await better.process(handle.id).retry()
    await until_row(better, handle.id, lambda row: b'"rung":1' in (row.state or b""))


async def test_a_machine_whose_state_is_damaged_is_parked_and_can_be_ended(opened: Open, store_url: str) -> None:
    before = meter(form=1, factor=1)
    handle = await left_at_three(opened, before)
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
