"""The reference has every class that a program gets: from engines, handles, workflows, attempts and their verbs."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import is_dataclass
from functools import cache, cached_property
from importlib import import_module
from pkgutil import resolve_name
from types import ModuleType
from typing import Any, get_args, get_origin, get_overloads, get_type_hints

from msgspec import Struct

from perdure import Workflow
from perdure.authoring.attempt import Attempt
from perdure.authoring.check.plan import CheckPortion
from perdure.authoring.operation.plan import Carried, Selected
from perdure.authoring.start import WithOptions
from perdure.client.handle import Handle
from perdure.client.operations import Operations
from perdure.client.queues import Queues, QueueView
from perdure.client.reply import ReplyAddresses
from perdure.engine import Engine
from perdure.kernel.leader import Leader
from perdure.portal import BlockingEngine
from tests.house.page import DOCS

FIRST = (Engine, BlockingEngine, Handle, Workflow, Attempt)
"""What a program has first; what their verbs return has verbs that return others."""

OF_OURS = {
    Carried,  # what the process of an operation asks of the engine that hosts it
    CheckPortion,
    Leader,  # the row that a leadership reads
    ReplyAddresses,  # what a start asks for `reply_to`
    Selected,
    WithOptions,  # a workflow with options: a start takes it in place of the workflow
}
"""What only Perdure's own parts are given."""


def shown(text: str) -> Iterator[Any]:
    """The classes and functions that a page shows: each by its name, or those that its module defines."""
    for name, options in re.findall(r"^::: (perdure[\w.]*)\n((?:    .*\n)*)", f"{text}\n", re.MULTILINE):
        found = _named(name)
        members = re.findall(r"^ +- (\w+)$", options, re.MULTILINE)
        if not isinstance(found, ModuleType):
            yield found
        for member in members or (vars(found) if isinstance(found, ModuleType) else ()):
            one = getattr(found, member)
            if members or (not member.startswith("_") and getattr(one, "__module__", "") == found.__name__):
                yield one


def _named(name: str) -> Any:
    """What a page names, where a name of `perdure` may be that of a module too."""
    home, _, last = name.rpartition(".")
    return getattr(import_module(home), last) if home == "perdure" else resolve_name(name)


def returned(every: Iterable[type]) -> dict[type, str]:
    """The classes of ours that the public verbs of these return, with what those return and hold, and whose it is."""
    found = {one: one.__name__ for one in every}
    waiting = list(found)
    for one in waiting:  # it grows
        for verb, type in _answers(one):
            if type not in found:
                found[type] = f"{found[one]}.{verb}"
                waiting.append(type)
    return found


def _answers(owner: type) -> Iterator[tuple[str, type]]:
    for name in dir(owner):
        verb = inspect.getattr_static(owner, name)
        verb = verb.func if isinstance(verb, cached_property) else verb
        verb = verb.fget if isinstance(verb, property) else getattr(verb, "__func__", verb)
        if not name.startswith("_") and inspect.isfunction(verb):
            for one in (verb, *get_overloads(verb)):
                hint = get_type_hints(one, globalns=_names(one.__module__)).get("return")
                yield from ((name, type) for type in _classes(hint))
    if is_dataclass(owner) or issubclass(owner, Struct):
        for name, hint in get_type_hints(owner, globalns=_names(owner.__module__)).items():
            yield from ((name, type) for type in _classes(hint) if not name.startswith("_"))


def _classes(hint: Any) -> Iterator[type]:
    if isinstance(hint, list):  # the parameters of a callable
        return
    for one in (hint, get_origin(hint)):
        if isinstance(one, type) and one.__module__.partition(".")[0] == "perdure":
            yield one
    for part in get_args(hint):
        yield from _classes(part)


@cache
def _names(module: str) -> dict[str, Any]:
    """The names of a module, with those that it imports for annotations only."""
    found = dict(vars(sys.modules[module]))
    for node in ast.walk(ast.parse(inspect.getsource(sys.modules[module]))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "perdure":
            home = import_module(node.module or "")
            found |= {name.name: getattr(home, name.name) for name in node.names if hasattr(home, name.name)}
    return found


def reference() -> set[Any]:
    """All that the pages of the reference show."""
    pages = (DOCS / "reference").glob("*.md")
    return {one for page in pages for one in shown(page.read_text(encoding="utf-8")) if isinstance(one, type)}


def test_every_class_that_a_public_verb_returns_stands_in_the_reference() -> None:
    told = reference()
    assert [
        f"{verb} returns {type.__module__}.{type.__qualname__}"
        for type, verb in returned(FIRST).items()
        if type not in told | OF_OURS
    ] == []


def test_a_class_that_is_returned_and_shown_nowhere_is_found() -> None:
    found = returned((Engine,))
    assert found[Queues] == "Engine.queues" and found[QueueView].startswith("Engine.queues.")
    page = "::: perdure.client.queues\n    options:\n      members:\n        - Queues\n"
    assert set(shown(page)) == {Queues}
    assert QueueView in set(shown("::: perdure.client.queues\n"))
    assert Operations in found and not found.keys() & {int, str}
