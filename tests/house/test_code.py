"""What no line of the package may do: SQL text in Python, code from stored values, the machine's clock and chance."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perdure import telemetry
from tests.house.tree import PACKAGE, Module, dotted, modules, planted

SQL = re.compile(
    r"\bSELECT\s+(\*|\w+\s*\(|.*\bFROM\b)|\bINSERT\s+(OR\s+\w+\s+)?INTO\b|\bUPDATE\s+[\w.]+\s+SET\b|\bDELETE\s+FROM\b"
    r"|\b(CREATE|DROP|ALTER)\s+(TEMP\s+|UNIQUE\s+)?(TABLE|INDEX|SCHEMA|FUNCTION|VIEW|TRIGGER)\b",
    re.IGNORECASE | re.DOTALL,
)
SEARCH_BUILDER = "src/perdure/store/sqlite/search.py"
"""The one file that may build SQL text."""

CODE_FROM_VALUES = frozenset({"eval", "exec", "compile", "__import__"})
NO_MODULES = frozenset({"pickle", "marshal", "shelve", "dill", "cloudpickle"})
MACHINE = {
    "time": {"time", "time_ns", "monotonic", "monotonic_ns"},
    "datetime": {"now", "utcnow", "today"},
    "date": {"today"},
    "uuid": {"uuid1", "uuid4", "uuid6", "uuid7"},
    "random": {"random", "randint", "randrange", "choice", "choices", "shuffle", "sample", "uniform", "seed"},
    "os": {"urandom", "getrandom"},
    "secrets": {"token_bytes", "token_hex", "token_urlsafe", "randbelow", "choice"},
}


UNITS = (
    "SECONDS", "BYTES", "EVENTS", "PROCESSES", "ROWS", "RECORDS", "DIGITS", "DEPTH", "DEATHS", "THREADS", "JITTER",
    "TRIES", "CALLS", "TURNS", "TOKENS", "OBJECTS", "CELLS", "CONNECTIONS", "WORKERS", "DAYS",
)  # fmt: skip


def sql_texts(module: Module) -> Iterator[str]:
    """String constants, docstrings left out, that are SQL."""
    prose = {id(node.value) for node in module.nodes(ast.Expr)}
    for node in module.nodes(ast.Constant):
        text = node.value if id(node) not in prose else None
        if isinstance(text, str) and SQL.search(text):
            yield f"{module.name}:{node.lineno} holds SQL: {text.strip()[:60]!r}"


def numbered_parameters(module: Module) -> Iterator[str]:
    """Parameters of SQLite by number (``?1``): Python 3.14 refuses values for them that are not given by name."""
    for node in module.nodes(ast.Constant):
        text = node.value
        if isinstance(text, str) and re.search(r"\?\d", text) and (len(text) == 2 or SQL.search(text)):
            yield f"{module.name}:{node.lineno} numbers a parameter; write :name, and give a mapping"


def code_from_values(module: Module) -> Iterator[str]:
    """Ways to run code because of stored values."""
    for node in module.nodes(ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id in CODE_FROM_VALUES:
            yield f"{module.name}:{node.lineno} calls {node.func.id}"
    imported = [(node.lineno, alias.name) for node in module.nodes(ast.Import) for alias in node.names]
    imported += [(node.lineno, node.module or "") for node in module.nodes(ast.ImportFrom)]
    for line, name in imported:
        if name.split(".")[0] in NO_MODULES:
            yield f"{module.name}:{line} imports {name}"


def machine_calls(module: Module) -> Iterator[str]:
    """Calls of the machine's own clock or chance; a mere mention, to replace or refuse them, is no call."""
    imported = {
        (alias.asname or alias.name): f"{node.module}.{alias.name}"
        for node in module.nodes(ast.ImportFrom)
        if node.module in MACHINE
        for alias in node.names
    }
    for node in module.nodes(ast.Call):
        called = dotted(node.func)
        called = imported.get(called, called)
        owner, _, name = called.rpartition(".")
        if name in MACHINE.get(owner.removeprefix("datetime."), ()):
            yield f"{module.name}:{node.lineno} calls {called}; it is handed in (perdure.clock)"


def test_no_sql_text_stands_in_python() -> None:
    package = [m for m in modules("src") if m.name != SEARCH_BUILDER and "testing" not in m.path.parts]
    assert [found for module in package for found in sql_texts(module)] == []


def test_no_sql_numbers_its_parameters() -> None:
    everywhere = [
        module
        for module in modules("src", "tests", "bench")
        if not {"house", "hostile"} & {module.path.parent.name, module.path.stem}
    ]
    assert [found for module in everywhere for found in numbered_parameters(module)] == []
    assert list(numbered_parameters(planted('f("DELETE FROM t WHERE id = ?1", row)\nf("?2")\n')))


def test_no_code_runs_because_of_stored_values() -> None:
    assert [found for module in modules("src", "examples") for found in code_from_values(module)] == []


def test_time_chance_and_identity_are_handed_in() -> None:
    package = [module for module in modules("src") if module.path != PACKAGE / "clock.py"]
    assert [found for module in package for found in machine_calls(module)] == []


def test_forbidden_code_is_found_where_it_is_planted() -> None:
    assert list(sql_texts(planted('q = "select * from process"')))
    assert list(sql_texts(planted('q = f"DELETE FROM {table}"')))
    assert not list(sql_texts(planted('q = "select an order, update it"')))
    assert list(code_from_values(planted("import pickle")))
    assert list(code_from_values(planted("eval(x)")))
    assert list(machine_calls(planted("import time\ntime.time()")))
    assert list(machine_calls(planted("from uuid import uuid4 as u\nu()")))
    assert list(machine_calls(planted("import datetime\ndatetime.datetime.now()")))


def counter_names(module: Module) -> Iterator[tuple[str, str]]:
    """(where, name) for every counter named in the code."""
    for node in module.nodes(ast.Call):
        if dotted(node.func).endswith("telemetry.count") and isinstance(node.args[0], ast.Constant):
            yield f"{module.name}:{node.lineno}", str(node.args[0].value)
    for node in module.nodes(ast.Assign):
        if dotted(node.targets[0]) == "COUNTER":
            yield f"{module.name}:{node.lineno}", str(ast.literal_eval(node.value))


def test_every_counter_in_the_code_is_in_the_table_of_counters() -> None:
    named = [pair for module in modules("src") for pair in counter_names(module)]
    assert [pair for pair in named if pair[1] not in telemetry.COUNTERS] == []


def test_every_counter_of_the_table_is_counted_somewhere() -> None:
    texts = "\n".join(module.text for module in modules("src") if module.path != PACKAGE / "telemetry.py")
    assert [name for name in telemetry.COUNTERS if not re.search(rf"[\"']{name}[\"']", texts)] == []


def test_every_default_has_its_unit_in_its_name_and_is_used() -> None:
    units = re.compile(rf"_({'|'.join(UNITS)})$")
    (limits,) = (module for module in modules("src") if module.path == PACKAGE / "limits.py")
    used = {word for module in modules("src") if module is not limits for word in re.findall(r"\w+", module.text)}
    functions = {node.name for node in limits.tree.body if isinstance(node, ast.FunctionDef)}
    bounds = [name for name in limits.names if name not in functions]
    assert [name for name in bounds if not units.search(name)] == []
    assert [name for name in bounds if name not in used] == []


def bare_asserts(module: Module) -> Iterator[str]:
    """Asserts, which vanish under ``python -O``."""
    for node in module.nodes(ast.Assert):
        yield f"{module.name}:{node.lineno} asserts"


def test_no_bare_assert_stands_where_records_are_at_stake() -> None:
    at_stake = modules("src/perdure/kernel", "src/perdure/store")
    assert [found for module in at_stake for found in bare_asserts(module)] == []
