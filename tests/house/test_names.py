"""Names say what they are: one sentence at the top, words of the glossary, nothing that could mean anything."""

from __future__ import annotations

import ast
import re
from asyncio import AbstractEventLoop
from collections.abc import Iterator

from tests.house.tree import DefinitionNode, Module, modules, planted, words

FORBIDDEN = frozenset({"manager", "helper", "util", "utils", "handler", "common", "data", "info", "job"})
VAGUE = FORBIDDEN | {f"{word}s" for word in FORBIDDEN}
SENTENCE = re.compile(r"^[A-Z`:\"'0-9].*[.:?!…]$", re.DOTALL)


def forbidden_names(module: Module) -> Iterator[str]:
    """File, class and function names with a word that could mean anything; asyncio's own names are not ours."""
    if VAGUE & set(words(module.path.stem)):
        yield f"{module.name} is named by a forbidden word"
    for node in [*module.functions(), *module.classes()]:
        if VAGUE & set(words(node.name)) and not hasattr(AbstractEventLoop, node.name):
            yield f"{module.name}:{node.lineno} {node.name} is named by a forbidden word"


def first_sentence_faults(module: Module) -> Iterator[str]:
    """Modules whose first line is not a sentence for a stranger."""
    text = ast.get_docstring(module.tree)
    if not text and not module.text.strip():
        yield f"{module.name} is empty; say in one sentence what its folder is"
    elif not text:
        yield f"{module.name} opens without a sentence"
    elif not SENTENCE.match(text.split("\n\n")[0].strip()):
        yield f"{module.name} does not open with a sentence: {text.splitlines()[0]!r}"


def silent_names(module: Module) -> Iterator[str]:
    """Public classes, functions and methods without a docstring."""
    for name, node in module.definitions().items():
        parts = name.split(".")
        if any(part.startswith("_") for part in parts) or parts[-1].startswith("test_"):
            continue
        if ast.get_docstring(node) is None and not _says_nothing_new(node):
            yield f"{module.name}:{node.lineno} {name} has no docstring"


def _says_nothing_new(node: DefinitionNode) -> bool:
    decorators = {ast.unparse(decorator).rpartition(".")[2] for decorator in getattr(node, "decorator_list", ())}
    return bool(decorators & {"overload", "override", "setter"})


def test_no_name_is_a_word_that_could_mean_anything() -> None:
    assert [found for module in modules("src", "tests", "examples", "bench") for found in forbidden_names(module)] == []


def test_every_module_opens_with_a_sentence() -> None:
    every = modules("src", "tests", "examples", "bench", "docs")
    assert [found for module in every for found in first_sentence_faults(module)] == []


def test_every_public_name_has_a_docstring() -> None:
    assert [found for module in modules("src") for found in silent_names(module)] == []


def test_wrong_names_and_silent_modules_are_found() -> None:
    assert list(forbidden_names(planted("class TaskManager: ...")))
    assert list(forbidden_names(planted("def get_info(): ...")))
    assert list(forbidden_names(planted("x = 1", "src/perdure/sql_utils.py")))
    assert not list(forbidden_names(planted("def set_exception_handler(self): ...")))
    assert list(first_sentence_faults(planted("x = 1")))
    assert list(first_sentence_faults(planted('"""utilities"""')))
    assert list(silent_names(planted("class Shown:\n    def act(self): ...\n")))


def test_named_things_are_nouns_in_the_singular_and_never_parts() -> None:
    vague = re.compile(r"^(models|enums|types|misc|core|base_?\d+|part_?\d*|.*_part_?\d+|.*\d)$")
    wrong = [module.name for module in modules("src") if vague.match(module.path.stem)]
    assert wrong == []
