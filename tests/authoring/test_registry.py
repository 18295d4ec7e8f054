"""The registry: workflows by name, from objects, modules and files, with errors that say what is near."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.authoring.registry import Registry
from perdure.authoring.start import NamedWorkflow
from perdure.authoring.workflow import workflow
from perdure.errors import DefinitionError, UnknownKind

SHOP = """
from perdure.authoring.registry import Registry
from perdure.authoring.step import step
from perdure.authoring.workflow import workflow

@workflow
async def order(name: str) -> str:
    return name

@workflow(name="return", version="2")
async def take_back(name: str) -> str:
    return name

class Back:
    flows = [take_back]
    registry = Registry(order)
    number = 7
"""


@workflow
async def order(name: str) -> str:
    return name


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory on the import path with modules, good and bad."""
    (tmp_path / "perdure_shop.py").write_text(SHOP)
    (tmp_path / "perdure_empty.py").write_text("")
    (tmp_path / "perdure_broken.py").write_text("1 / 0")
    (tmp_path / "perdure_leaving.py").write_text("raise SystemExit(1)")
    (tmp_path / "perdure_lacking.py").write_text("import perdure_that_is_not_there")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("perdure_")]:
        del sys.modules[name]
    gc.collect()  # a program knows its workflows for as long as they live: bad ones must not outlive their test


def test_a_registry_hosts_what_it_was_given(shop: Path) -> None:
    registry = Registry(order)
    assert registry.hosted == (("order", "tests.authoring.test_registry:order"),)
    assert registry.find("order") is order
    registry = Registry("perdure_shop")
    assert registry.hosted == (("order", "perdure_shop:order"), ("return", "2"))
    assert registry.sources == ["perdure_shop"]
    registry.load("perdure_shop")
    assert Registry(sys.modules["perdure_shop"]).kinds == registry.kinds


@pytest.mark.parametrize(
    ("part", "hosted"),
    [("order", ["order"]), ("Back.flows", ["return"]), ("Back.registry", ["order"]), ("take_back", ["return"])],
)
def test_a_part_of_a_module_may_be_named(shop: Path, part: str, hosted: list[str]) -> None:
    assert list(Registry(f"perdure_shop:{part}").kinds) == hosted


def test_a_file_may_be_named_and_is_loaded_once(shop: Path) -> None:
    registry = Registry(f"{shop}/perdure_shop.py")
    assert list(registry.kinds) == ["order", "return"]
    registry.load(f"{shop}/perdure_shop.py")
    registry.load("perdure_shop")


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("perdure_shp", "there is no module 'perdure_shp'"),
        ("perdure_shop:ordr", "has no 'ordr'.*Did you mean 'order'"),
        ("perdure_shop:Back.number", "is not a workflow"),
        ("perdure_empty", "defines no workflow"),
        ("perdure_broken", "does not import: ZeroDivisionError"),
        ("perdure_leaving", "does not import: SystemExit"),
        ("perdure_lacking", "does not import.*perdure_that_is_not_there"),
        ("./nowhere.py", "there is no file"),
        ("{shop}/perdure_broken.py", "does not import: ZeroDivisionError"),
    ],
)
def test_a_source_that_cannot_be_used_is_told_with_what_to_do(shop: Path, source: str, told: str) -> None:
    with pytest.raises(DefinitionError, match=told):
        Registry(source.format(shop=shop))


def test_an_unknown_kind_is_told_with_those_that_are_near(shop: Path) -> None:
    with pytest.raises(UnknownKind, match=r"no workflow 'odrer' is known here\. Did you mean 'order'"):
        Registry(order).find("odrer")


def test_two_workflows_of_one_given_name_are_refused_with_both_places() -> None:
    async def first() -> None: ...

    async def second() -> None: ...

    registry = Registry(workflow(name="registry/one")(first))
    with pytest.raises(
        DefinitionError, match=rf"two workflows are called 'registry/one': {__file__}:\d+ and {__file__}"
    ):
        registry.add(workflow(name="registry/one")(second))


def test_workflows_of_one_name_from_two_modules_are_hosted_side_by_side_and_not_found_by_the_name(shop: Path) -> None:
    registry = Registry("perdure_shop", order)
    assert registry.hosted[:1] == (("order", "perdure_shop:order"),)
    assert ("order", "tests.authoring.test_registry:order") in registry.hosted
    assert registry.find(order) is order
    assert registry.startable(NamedWorkflow("order", version="tests.authoring.test_registry:order"))[0] is order
    for name in ("order", NamedWorkflow("order")):
        with pytest.raises(UnknownKind, match=r"several versions of workflow 'order'.*version='perdure_shop:order'"):
            registry.startable(name)


def test_a_function_defined_below_its_workflow_is_read_when_it_is_registered(shop: Path) -> None:
    (shop / "perdure_late.py").write_text(
        "from datetime import datetime\n"
        "from perdure.authoring.workflow import workflow\n"
        "@workflow\nasync def late() -> str:\n    return stamp()\n"
        "def stamp() -> str:\n    return str(datetime.now())\n"
    )
    with pytest.raises(DefinitionError, match=r"<workflow late> would differ .*perdure_late.py:6.*datetime.now"):
        Registry("perdure_late")


def test_two_versions_under_one_name_of_a_module_are_both_known_and_the_later_one_starts(shop: Path) -> None:
    (shop / "perdure_two.py").write_text(
        "from perdure.authoring.workflow import workflow\n"
        "@workflow(version='1')\nasync def sale() -> int:\n    return 1\n"
        "@workflow(version='2')\nasync def sale() -> int:\n    return 2\n"
    )
    registry = Registry("perdure_two")
    assert set(registry.hosted) == {("sale", "1"), ("sale", "2")}
    assert registry.kinds["sale"].version == "2"
    assert registry.code_of("sale", "1").version == "1"


def test_the_version_defined_last_starts_processes_in_whatever_order_they_are_added() -> None:
    @workflow(name="parcel", version="1")
    async def first() -> None: ...

    @workflow(name="parcel", version="2")
    async def second() -> None: ...

    for members in ((first, second), (second, first)):
        assert Registry(*members).find("parcel") is second
    registry = Registry(second)
    assert registry.find(first) is first and registry.find("parcel") is second


def test_two_workflows_of_one_name_and_one_version_are_refused() -> None:
    @workflow(name="twin", version="1")
    async def one() -> None: ...

    @workflow(name="twin", version="1")
    async def other() -> None: ...

    with pytest.raises(DefinitionError, match=r"two workflows are called 'twin'.* or a version of its own"):
        Registry(one, other)
