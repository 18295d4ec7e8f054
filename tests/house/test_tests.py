"""Tests are sentences; nobody sleeps in them, and nobody mocks a store of ours."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests import quick
from tests.house.page import rows, spans
from tests.house.tree import ROOT, FunctionNode, Module, dotted, modules, planted, tracked, words

SENTENCE_WORDS = 4
FOLDERS = ("tests", "src/perdure/testing")
OTHERS_WORKERS = "tests/kill"
"""Where tests watch OS processes that they cannot be woken by, and therefore poll."""


def short_names(module: Module) -> Iterator[str]:
    """Tests whose names claim nothing."""
    for node in module.functions():
        if node.name.startswith("test_") and len(words(node.name)) < SENTENCE_WORDS:
            yield f"{module.name}:{node.lineno} {node.name} is no sentence"


def sleeps(module: Module) -> Iterator[str]:
    """Sleeping in a test itself; code under test that sleeps stands in functions of its own."""
    for test in module.functions() if "sleep" in module.text else ():
        if not test.name.startswith("test_"):
            continue
        for node in _own(test):
            if not isinstance(node, ast.Call) or dotted(node.func) not in ("time.sleep", "asyncio.sleep", "sleep"):
                continue
            if not (node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0):
                yield f"{module.name}:{node.lineno} {test.name} sleeps"


def _own(function: FunctionNode) -> Iterator[ast.AST]:
    """The nodes of a function without those of functions inside it."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, FunctionNode | ast.Lambda | ast.ClassDef):
            waiting.extend(ast.iter_child_nodes(node))


def mocks(module: Module) -> Iterator[str]:
    """Stand-ins for our own stores: there are two real ones, and they are quick."""
    for node in module.nodes(ast.ImportFrom, ast.Import) if "mock" in module.text else ():
        if "mock" in ast.unparse(node):
            yield f"{module.name}:{node.lineno} imports a mock"


def sources(module: Module) -> Iterator[str]:
    """Programs that import Perdure from this repository, whichever engine is tested: a broken one would be missed."""
    for number, line in enumerate(module.text.splitlines(), 1):
        if re.search(r"""ROOT / ['"]src['"](?! /)""", line):
            yield f"{module.name}:{number} take it from tests/source.py"


def test_every_test_is_a_sentence() -> None:
    assert [found for module in modules(*FOLDERS) for found in short_names(module)] == []


def test_programs_that_tests_start_import_the_perdure_that_is_tested() -> None:
    watched = [module for module in modules("tests") if not module.name.startswith("tests/house/")]
    assert [found for module in watched for found in sources(module)] == []
    assert list(sources(planted("ENVIRONMENT = {'PYTHONPATH': str(ROOT / 'src')}\n")))


def test_nobody_sleeps_in_a_test() -> None:
    watched = [module for module in modules(*FOLDERS) if not module.name.startswith(OTHERS_WORKERS)]
    assert [found for module in watched for found in sleeps(module)] == []


def test_nobody_mocks_anything_of_ours() -> None:
    assert [found for module in modules(*FOLDERS) for found in mocks(module)] == []


def test_no_two_tests_of_a_file_or_suite_share_a_name() -> None:
    for module in modules(*FOLDERS):
        for scope in [module.tree, *module.classes()]:
            names = [node.name for node in scope.body if isinstance(node, FunctionNode)]
            doubled = {name for name in names if name.startswith("test_") and names.count(name) > 1}
            assert not doubled, module.name


def test_sleeping_nameless_and_mocking_tests_are_found() -> None:
    assert list(short_names(planted("def test_it(): ...")))
    assert list(sleeps(planted("async def test_x():\n    await asyncio.sleep(0.1)\n")))
    assert not list(sleeps(planted("async def test_x():\n    async def flow(): await asyncio.sleep(9)\n")))
    assert list(mocks(planted("from unittest.mock import Mock")))


def test_what_each_folder_of_tests_proves_is_in_their_readme() -> None:
    text = (ROOT / "tests" / "README.md").read_text(encoding="utf-8")
    told = [name for row in rows(text, "folder") for name in spans(row[0])]
    tests = [path.relative_to(ROOT / "tests") for path in tracked() if ROOT / "tests" in path.parents]
    assert told == sorted({path.parts[0] for path in tests if len(path.parts) > 1})
    assert [name for name in re.findall(r"`(\w+\.py)`", text) if not (ROOT / "tests" / name).exists()] == []


def test_the_quick_tests_are_places_that_are_there_and_ask_for_no_server() -> None:
    named = [*quick.SLOW, *(place for places in quick.RUNS.values() for place in places)]
    assert [name for name in named if not (ROOT / "tests" / name).exists()] == []
    assert quick.needs_a_server(["request", "shared_server"], [])
    assert quick.needs_a_server(["opened", "store_url"], [10**5000, "postgres"])
    assert not quick.needs_a_server(["opened", "store_url"], ["sqlite", None])
