"""Workflow code is read again for a further engine only if one of its names means something else by then."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from types import FunctionType, ModuleType

import pytest

from perdure.authoring.fingerprint import fingerprint, fingerprints
from perdure.authoring.registry import Registry
from perdure.authoring.review import review
from perdure.authoring.step import step
from perdure.authoring.workflow import DEFINED, Workflow, workflow
from perdure.errors import DefinitionError
from perdure.kernel.names import LIBRARY
from perdure.turns.sandbox import static_check
from perdure.turns.sandbox.mentions import is_own

CODE = """
import read_once_tools
from perdure.authoring.workflow import workflow

class Kit:
    @staticmethod
    def made(): return 1

def helper(): return 1

@workflow(name="names_it", version="1")
async def names_it():
    from read_once_tools import deep
    return helper(), read_once_tools.helper(), Kit.made(), later(), deep()
"""


def harmless() -> int:
    return 1


def reads_the_clock() -> datetime:
    return datetime.now()  # noqa: DTZ005


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module whose workflow names functions in each way in which code can."""
    tools, module = ModuleType("read_once_tools"), ModuleType("read_once")
    vars(tools).update(helper=harmless, deep=harmless)
    monkeypatch.setitem(sys.modules, tools.__name__, tools)
    exec(CODE, vars(module))  # noqa: S102
    yield module
    DEFINED.pop(("names_it", "1"), None)


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each reading of the code of a workflow."""
    found: list[str] = []
    check = static_check.check

    def counted(function: FunctionType, what: str, *rest: object) -> list[FunctionType]:
        found.append(what)
        return check(function, what, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(static_check, "check", counted)
    return found


def test_code_whose_names_mean_what_they_did_is_not_read_again(module: ModuleType, readings: list[str]) -> None:
    for _ in range(3):
        Registry(module.names_it)
    assert readings == []


@pytest.mark.parametrize(
    "change",
    [
        lambda module: setattr(module, "helper", reads_the_clock),
        lambda module: setattr(module, "later", reads_the_clock),
        lambda module: setattr(module.read_once_tools, "helper", reads_the_clock),
        lambda module: setattr(module.read_once_tools, "deep", reads_the_clock),
        lambda module: setattr(module.Kit, "made", staticmethod(reads_the_clock)),
    ],
    ids=["a global", "one defined below", "of a module", "imported in it", "of a class"],
)
def test_code_is_read_again_when_a_name_means_something_else(
    change: Callable[[ModuleType], None], module: ModuleType
) -> None:
    Registry(module.names_it)
    change(module)
    for _ in range(2):  # a refusal is not forgotten either
        with pytest.raises(DefinitionError, match=r"reads_the_clock .* uses datetime\.now\(\)"):
            Registry(module.names_it)


def test_code_is_read_again_when_a_name_of_the_function_around_it_means_something_else() -> None:
    helper: Callable[[], object] = harmless

    @workflow(name="around", version="1")
    async def around() -> None:
        helper()

    Registry(around)
    helper = reads_the_clock
    with pytest.raises(DefinitionError, match=r"uses datetime\.now"):
        Registry(around)


def test_a_queued_step_that_a_function_names_only_later_has_its_queue_served() -> None:
    @workflow(name="pays", version="1")
    async def pays() -> None:
        await pay()

    assert not Registry(pays).queues

    @step(name="read_once_pay", queue="read_once")
    async def pay() -> None: ...

    for _ in range(2):
        assert [work.queue for work in Registry(pays).queues.values()] == ["read_once"]


def test_perdures_own_workflows_pass_what_is_asked_of_all_others() -> None:
    own = [one for one in DEFINED.values() if is_own(one.function) and one.name.startswith(LIBRARY)]
    assert len(own) >= 3
    for one in own:
        for function in one.functions:
            review(static_check.check(function, f"{one}"))


def test_a_module_is_fingerprinted_alike_for_one_and_for_all_of_its_workflows(module: ModuleType) -> None:
    exec("@workflow(name='too', version='1')\nasync def too(): return 2", vars(module))  # noqa: S102
    inner: Workflow[..., object] = _inner()
    functions = [module.names_it.function, inner.function, module.too.function]
    assert list(fingerprints(functions)) == list(map(fingerprint, functions))
    first, local, last = fingerprints(functions)
    assert first == last != local
    DEFINED.pop(("too", "1"), None)


def _inner() -> Workflow[..., object]:
    @workflow(name="inner", version="1")
    async def inner() -> int:
        return 3

    return inner
