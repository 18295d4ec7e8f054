"""A task's input: which step it means, also where a program has several of that name."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from msgspec import Raw, json

from perdure.authoring.definitions import definition_of
from perdure.authoring.queue import Task
from perdure.authoring.registry import Registry
from perdure.authoring.step import Step, step
from perdure.errors import DefinitionError, UnknownKind
from perdure.quarantined import hosted

BANK = """
from perdure.authoring.step import step
from perdure.authoring.workflow import workflow

@step(name="tasks/transfer", queue="bank")
async def transfer(cents: int) -> int:
    return cents

@workflow(name=__name__)
async def pay(cents: int) -> int:
    return await transfer(cents)
"""


@step(name="tasks/charge", queue="bank")
async def charge(cents: int) -> int:
    return cents


@step(name="tasks/charge", queue="bank")
async def charge_twice(cents: int) -> int:
    return 2 * cents


@step(name="tasks/refund")
async def refund(cents: int) -> int:
    return -cents


def meant(registry: Registry, name: str, definition: str) -> Callable[..., Any]:
    """The function that a worker of the queue "bank" would call for such a task."""
    task = Task(name, "key", Raw(b'{"cents":7}'), definition=definition)
    [found, *_], _ = registry.serve("bank").shape.decode(json.encode(task))
    assert isinstance(found, Step)
    assert not found.away
    function: Callable[..., Any] = found.function
    return function


def test_of_steps_of_one_name_the_very_one_is_run_that_was_asked_for() -> None:
    for one in (charge, charge_twice):
        assert meant(Registry(), "tasks/charge", one.definition) is one.function


@pytest.mark.parametrize("definition", ["", "old.place:charge"])
def test_where_it_cannot_be_known_which_of_several_is_meant_none_is_run(definition: str) -> None:
    with pytest.raises(UnknownKind, match=r"name with @step") as raised:
        meant(Registry(), "tasks/charge", definition)
    assert f"{charge.definition} and {charge_twice.definition}" in str(raised.value)
    assert (definition or "not recorded") in str(raised.value)


def test_a_step_that_was_moved_is_found_by_its_name_and_that_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    registry = Registry()
    with caplog.at_level(logging.WARNING, "perdure"):
        assert meant(registry, "tasks/refund", "") is refund.function
        assert caplog.messages == []
        for _ in range(2):
            assert meant(registry, "tasks/refund", "old.place:refund") is refund.function
    [said] = caplog.messages
    assert f"old.place:refund are run by {refund.definition}" in said


def test_a_registry_prefers_its_own_steps_where_nothing_better_is_known() -> None:
    module = ModuleType("perdure_till")
    vars(module).update(charge=charge)
    registry = Registry(module)
    registry.serve_only(["bank"])
    assert meant(registry, "tasks/charge", "") is charge.function
    assert meant(registry, "tasks/charge", charge_twice.definition) is charge_twice.function


def test_two_queued_steps_of_one_name_that_are_given_to_one_registry_are_refused() -> None:
    module = ModuleType("perdure_till")
    vars(module).update(charge=charge, charge_twice=charge_twice)
    with pytest.raises(DefinitionError, match=r"test_task\.py:\d+ and .*test_task\.py:\d+\. Give one of them another"):
        Registry(module)


def test_a_program_serves_the_queues_of_all_its_steps_whatever_their_names() -> None:
    @step(name="tasks/charge", queue="counter")
    async def elsewhere(cents: int) -> int:
        return cents

    assert {"@bank", "@counter"} <= set(Registry.of_program().queues)
    assert elsewhere.away


def test_a_module_that_is_run_as_a_program_defines_the_same_steps_as_when_it_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "perdure_bank.py"
    code = compile(BANK, file, "exec")
    found = []
    for name in ("perdure_bank", "__main__"):
        module = ModuleType(name)
        monkeypatch.setitem(sys.modules, name, module)
        exec(code, vars(module))  # noqa: S102
        found.append(definition_of(vars(module)["transfer"].function))
    assert found == ["perdure_bank:transfer", "perdure_bank:transfer"]


def test_a_suspect_is_run_alone_also_where_several_steps_of_its_program_have_one_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("perdure_one", "perdure_two"):
        (tmp_path / f"{name}.py").write_text(BANK)
    monkeypatch.syspath_prepend(tmp_path)
    registry = hosted((["bank"], []), ["perdure_one", "perdure_two"])
    assert registry.hosted == (("perdure_one", ""), ("perdure_two", ""), ("@bank", ""))
    for name in ("perdure_one", "perdure_two"):
        assert meant(registry, "tasks/transfer", f"{name}:transfer") is sys.modules[name].transfer.function
        del sys.modules[name]
