"""What a database offers is asked of its backend: nobody looks for a store's attribute, its class or its URL."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perdure.store.backend import Backend
from perdure.store.base import Store
from perdure.store.failover import Marks
from perdure.store.postgres.backend import PostgresBackend
from perdure.store.postgres.store import PostgresStore
from perdure.store.sealed.backend import SealedBackend
from perdure.store.sealed.store import SealedStore
from perdure.store.sqlite.backend import SqliteBackend
from perdure.store.sqlite.store import SqliteStore
from perdure.testing.faults import FaultyStore
from tests.house.tree import Module, modules, planted

OWN = ("src/perdure/store/sqlite/", "src/perdure/store/postgres/", "src/perdure/store/url.py")
"""Where the databases are told apart: their own modules, and the one that reads the scheme of a URL."""

_SCHEMES = re.compile(r"sqlite|postgres(ql)?(:.*)?")
_LOOKS = ("getattr", "hasattr")
_URL_LOOKS = ("startswith", "removeprefix", "partition")
_CLASS_LOOKS = ("isinstance", "issubclass")
_ASKS = frozenset({*_LOOKS, *_URL_LOOKS, *_CLASS_LOOKS})


def guesses(module: Module) -> Iterator[str]:
    """Where a module finds out by itself which store it has."""
    classes = {node.name for node in module.classes()}
    for compared in module.nodes(ast.Compare):
        if any(_is_scheme(one) for one in (compared.left, *compared.comparators)):
            yield f"{module.name}:{compared.lineno} compares with a scheme"
    for node in module.nodes(ast.Call):
        if not node.args or _last_name(node.func) not in _ASKS:
            continue
        name, first = ast.unparse(node.func), ast.unparse(node.args[0])
        if name in _LOOKS and re.search(r"\b_?store$", first):
            yield f"{module.name}:{node.lineno} looks for an attribute of {first}"
        if name.rpartition(".")[2] in _URL_LOOKS and _is_scheme(node.args[0]):
            yield f"{module.name}:{node.lineno} looks at the scheme of a URL"
        asked = re.findall(r"\w*Store\b", ast.unparse(node.args[-1])) if name in _CLASS_LOOKS else []
        if set(asked) - classes:
            yield f"{module.name}:{node.lineno} asks for the class of a store"


def _last_name(function: ast.expr) -> str:
    """What a call calls, without what it is looked up in: ``startswith`` of ``url.lower().startswith``."""
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _is_scheme(node: ast.expr) -> bool:
    """Whether a literal is the scheme of a database's URL; of a tuple, any member."""
    if isinstance(node, ast.Tuple | ast.Set | ast.List):
        return any(map(_is_scheme, node.elts))
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(_SCHEMES.match(node.value))


def test_nobody_finds_out_by_himself_which_store_he_has() -> None:
    found = [found for module in modules("src/perdure") if not module.name.startswith(OWN) for found in guesses(module)]
    assert found == [], "ask store.backend"


def test_a_module_that_finds_out_by_itself_is_noticed() -> None:
    for wrong in (
        "since = getattr(self.ward.store, 'standing_since', None)",
        "if isinstance(store, SealedStore): pass",
        "if store.url.startswith('postgres'): pass",
        "if url.lower().startswith(('sqlite:', 'x')): pass",
        "if url.partition(':')[0] in ('postgresql', 'postgres'): pass",
        "if scheme == 'sqlite': pass",
    ):
        assert list(guesses(planted(wrong))), wrong
    assert list(guesses(planted("class MyStore: pass\nisinstance(store, MyStore)\ngetattr(part, 'store')"))) == []


def offered(of: type) -> set[str]:
    """The public methods and properties of a class."""
    return {name for base in of.__mro__[:-1] for name in vars(base) if not name.startswith("_")}


def test_no_store_has_a_door_that_the_protocol_does_not_know() -> None:
    for store in (SqliteStore, PostgresStore, SealedStore, FaultyStore):
        assert offered(store) <= offered(Store) | offered(Marks), store


def test_every_backend_offers_the_same() -> None:
    for backend in (SqliteBackend, PostgresBackend, SealedBackend):
        assert offered(backend) | {"schema"} == offered(Backend), backend
