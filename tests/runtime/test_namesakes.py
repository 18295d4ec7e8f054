"""Workflows of one name from two modules are never taken for each other, whichever workers live."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from perdure.authoring.registry import Registry
from perdure.authoring.start import NamedWorkflow
from perdure.authoring.workflow import DEFINED, workflow
from perdure.errors import UnknownKind
from perdure.kernel.worker import Offer, WorkerRow, namesakes
from tests.runtime.conftest import LIMIT, Open, until
from tests.source import SOURCE

ROOT = Path(__file__).parents[2]
TEXT = """
from perdure import workflow

@workflow
async def run(number: int) -> str:
    return f"{__name__.rpartition('_')[2]} {number}"

@workflow(name="order", version="1")
async def order(number: int) -> str:
    return await run(number)

@workflow(name="account")
async def account(number: int) -> str:
    return await run(number)
"""


@pytest.fixture
def defined() -> Iterator[None]:
    """Forgets afterwards what a test has defined: by default engines of other tests host all that is defined."""
    before = dict(DEFINED)
    yield
    DEFINED.clear()
    DEFINED.update(before)


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, defined: None) -> Iterator[tuple[ModuleType, ModuleType]]:
    """Two modules that each define a workflow ``run``, and two whose names are given: ``account`` and ``order``."""
    names = ["perdure_billing", "perdure_shipping"]
    for name in names:
        (tmp_path / f"{name}.py").write_text(TEXT)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module(names[0]), importlib.import_module(names[1])
    for name in names:
        del sys.modules[name]


async def test_each_worker_runs_its_own_and_leaves_the_others(
    opened: Open, modules: tuple[ModuleType, ModuleType], caplog: pytest.LogCaptureFixture
) -> None:
    billing, shipping = modules
    client, _ = await opened()
    bill, parcel = await client.start(billing.run, 1), await client.start(shipping.run, 2)
    await opened(work=True, workflows=[shipping.run])
    assert await parcel.result(LIMIT) == "shipping 2"
    row = await client.row(bill.id)
    assert (row.kind, row.code, row.token) == ("run", "perdure_billing:run", 0)  # nobody has claimed it
    await opened(work=True, workflows=[billing.run])
    assert await bill.result(LIMIT) == "billing 1"
    await until(lambda: any("several workflows" in line for line in caplog.messages))
    (line,) = [line for line in caplog.messages if "several workflows" in line]
    assert "workers host several workflows called 'run': perdure_billing:run, perdure_shipping:run." in line


async def test_a_program_that_imports_both_hosts_both(opened: Open, modules: tuple[ModuleType, ModuleType]) -> None:
    engine, _ = await opened(work=True, workflows=[module.run for module in modules])
    handles = [await engine.start(module.run, number) for number, module in enumerate(modules)]
    assert [await handle.result(LIMIT) for handle in handles] == ["billing 0", "shipping 1"]


async def test_the_name_alone_starts_none_of_several_and_a_version_says_which(
    opened: Open, modules: tuple[ModuleType, ModuleType]
) -> None:
    billing, shipping = modules
    await opened(work=True, workflows=[billing.run])
    stranger, _ = await opened(workflows=[])
    assert await (await stranger.start("run", 1)).result(LIMIT) == "billing 1"
    assert await (await stranger.start(NamedWorkflow("run").options(key="A"), 2)).result(LIMIT) == "billing 2"
    await opened(work=True, workflows=[shipping.run])
    for name in ("run", NamedWorkflow("run")):
        with pytest.raises(UnknownKind, match="version='perdure_billing:run', version='perdure_shipping:run'"):
            await stranger.start(name, 3)
    chosen = NamedWorkflow("run", version="perdure_shipping:run")
    assert await (await stranger.start(chosen, 4)).result(LIMIT) == "shipping 4"


async def test_a_given_name_that_live_workers_host_from_two_modules_is_told_with_what_to_do(
    opened: Open, modules: tuple[ModuleType, ModuleType], caplog: pytest.LogCaptureFixture
) -> None:
    billing, shipping = modules
    await opened(work=True, workflows=[billing.account, billing.order])
    await opened(work=True, workflows=[billing.account, shipping.order])
    await until(lambda: shared(caplog))
    (line,) = set(shared(caplog))
    assert "as one workflow, 'order' version '1': perdure_billing:order, perdure_shipping:order." in line
    assert "runs processes that the code of another one has begun" in line
    assert "give one function another name with @workflow(name=...), or stop the workers with the old module" in line


async def test_a_worker_runs_a_process_of_a_given_name_with_the_code_of_its_own_module(
    opened: Open, modules: tuple[ModuleType, ModuleType]
) -> None:
    billing, shipping = modules
    client, _ = await opened()
    bill = await client.start(billing.order, 1)
    await opened(work=True, workflows=[shipping.order])
    assert await bill.result(LIMIT) == "shipping 1"


async def test_a_worker_beside_one_that_has_ended_tells_of_no_shared_name(
    opened: Open, modules: tuple[ModuleType, ModuleType], caplog: pytest.LogCaptureFixture
) -> None:
    billing, shipping = modules
    former, _ = await opened(work=True, workflows=[billing.order])
    await former.close()
    await opened(work=True, workflows=[shipping.order, shipping.run])
    await opened(work=True, workflows=[billing.run])
    await until(lambda: any("several workflows called 'run'" in line for line in caplog.messages))
    assert shared(caplog) == []


def shared(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in caplog.messages if "functions of different modules" in line]


def test_the_offer_of_a_registry_has_the_places_of_functions_whose_versions_do_not_say_them(
    modules: tuple[ModuleType, ModuleType],
) -> None:
    origins = Registry(modules[0]).offer(1).origins
    assert origins == {("order", "1"): "perdure_billing:order", ("account", ""): "perdure_billing:account"}


@pytest.mark.parametrize(
    ("module", "origin"), [("sh\udc80p", "sh\\udc80p:same"), ("my shop", "my shop:same"), (None, ""), ("", "")]
)
def test_a_function_of_a_module_without_a_name_that_is_text_is_offered_too(
    module: str | None, origin: str, defined: None
) -> None:
    space: dict[str, Any] = {"__name__": module} if module is not None else {}
    exec("async def same(): ...", space)  # noqa: S102
    given = workflow(name="other")(space["same"])
    offer = Registry(given).offer(1)
    assert offer.origins == ({("other", ""): origin} if origin else {})
    assert Offer.decode(offer.encode()) == offer


def test_only_names_that_are_so_by_default_are_namesakes() -> None:
    def host(*pairs: tuple[str, str]) -> WorkerRow:
        return WorkerRow(b"w" * 16, "w", Offer(frozenset(pairs)).encode())

    assert namesakes([host(("run", "a:run"), ("run", "2"), ("pay", "1")), host(("run", "a:run"), ("pay", "2"))]) == {}
    assert namesakes([host(("run", "b:run")), host(("run", "a:run"))]) == {"run": ["a:run", "b:run"]}


@pytest.mark.parametrize(
    "command", [["shop/app.py"], ["-m", "shop.app"], ["-c", "import shop.app"], ["-c", LOAD := "LOAD"]]
)
def test_a_module_has_one_name_however_it_is_run(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "app.py").write_text(f"{TEXT}\nprint(run.version)\n")
    load = "from perdure.authoring.registry import module_of; module_of('shop/app.py')"
    done = subprocess.run(
        [sys.executable, *(load if word == LOAD else word for word in command)],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": SOURCE}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stdout == "shop.app:run\n", done.stderr


def test_a_module_of_a_folder_without_a_package_is_found_by_others_as_it_was_run(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    text = f"{TEXT}\nfrom perdure.authoring.registry import Registry\nprint(run.version, *Registry(run).sources)\n"
    (tmp_path / "shop" / "app.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "shop.app"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": SOURCE}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stdout == "shop.app:run shop.app\n", done.stderr


def test_what_is_typed_in_or_made_in_a_function_has_no_version() -> None:
    text = "from perdure import workflow\nasync def run(): ...\nprint(repr(workflow(run).version))"
    for command in ([sys.executable, "-c", text], [sys.executable, "-"]):
        done = subprocess.run(
            command, input=text, env={**os.environ, "PYTHONPATH": SOURCE}, capture_output=True, text=True,
            timeout=60,
        )  # fmt: skip
        assert done.stdout == "''\n", done.stderr
