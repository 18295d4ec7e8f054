"""Each law stands under one name in both schemas and in the kernel."""

from __future__ import annotations

import inspect
import re

from perdure.kernel import soundness
from perdure.store.base import Store
from tests.house.schema import DATABASES, schema, tables
from tests.house.tree import PACKAGE, ROOT

LAWS = (
    "unfinished_is_due",
    "one_owner",
    "one_transaction",
    "history_is_gapless",
    "result_once",
    "nothing_unheard",
    "no_early_timer",
    "accepted_is_kept",
    "operators_use_the_front_door",
    "finished_is_final",
)
SAID_BY_SQL = frozenset({"unfinished_is_due", "one_owner", "history_is_gapless", "result_once", "nothing_unheard"})
"""The laws that concern one row at one time, so that a constraint can say them."""

OWN_TABLES = {
    "clock": "each database keeps its time in its own way",
    "gate": "SQLite has one writer",
    "migration": "SQLite counts in user_version",
    "schema_reader": "not of any process",
    "stream_inlet": "SQLite has one writer",
    "stream_head": "SQLite counts by the numbers of rows",
    "stream_record": "a row stands for an event on SQLite, and for a commit on PostgreSQL",
    "stream_kept": "SQLite knows at once until when",
    "stream_gone": "SQLite knows at once until when",
}
STORE_METHODS = 19
"""They were 18 until operations read many histories at once: one by one they are most of what an operation costs."""


def test_every_law_is_a_check_of_the_kernel_in_the_order_of_the_design() -> None:
    assert tuple(law.__name__ for law in soundness.LAWS) == LAWS
    for number, law in enumerate(soundness.LAWS, 1):
        assert (law.__doc__ or "").startswith(f"Law {number}: ")


def test_every_law_that_sql_can_say_is_a_constraint_of_both_databases() -> None:
    for database in DATABASES:
        constraints = {name for table in schema(database).values() for name in table.constraints}
        assert constraints >= SAID_BY_SQL, database


def test_every_law_has_a_test_that_breaks_it() -> None:
    text = (ROOT / "tests" / "kernel" / "test_soundness.py").read_text(encoding="utf-8")
    assert [law for law in LAWS if f'("{law}", ' not in text] == []


def test_both_databases_have_the_same_tables_and_columns() -> None:
    sqlite, postgres = (schema(database) for database in DATABASES)
    assert set(sqlite) - set(OWN_TABLES) == set(postgres) - set(OWN_TABLES)
    for name in set(sqlite) & set(postgres) - set(OWN_TABLES):
        assert sorted(sqlite[name].columns) == sorted(postgres[name].columns), name


def test_a_tables_columns_and_constraints_are_read_as_they_are_written() -> None:
    found = tables(
        "CREATE TABLE t (\n a int, -- x, y\n b text CHECK (b IN ('x', 'y')),\n CONSTRAINT law CHECK (a > 0)\n)"
    )
    assert found["t"].columns == ["a", "b"]
    assert found["t"].constraints == {"law"}


def test_the_store_protocol_has_at_most_19_methods_and_none_is_optional() -> None:
    methods = {
        name: part for name, part in vars(Store).items() if inspect.isfunction(part) and not name.startswith("_")
    }
    assert len(methods) <= STORE_METHODS
    text = (PACKAGE / "store" / "base.py").read_text(encoding="utf-8")
    assert not re.search(r"\boptional\b(?! for nobody)|NotImplemented", text.replace("none optional", ""))
