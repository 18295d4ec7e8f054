"""Every named query seeks: none reads through the rows of a table that grows, however SQLite plans it (rule 8)."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from perdure.kernel.process import Status
from perdure.store.base import Search
from perdure.store.query import load, repeated
from perdure.store.sqlite import schema
from perdure.store.sqlite.connection import Connection, alone
from perdure.store.sqlite.file import SqliteFile
from perdure.store.sqlite.search import _conditions

READ_THROUGH = re.compile(
    r"SCAN (?:main\.)?(?:process|event|message|stream_record|stream_kept|stream_gone|worker|key_kept)\b"
    r"(?! USING (?:COVERING )?INDEX (?:process_(?:due|suspect|asleep)|worker_alive)\b)"
)
BUILT = ("search_processes", "search_noticed", "search_newest", "count_processes")
WHOLE = ("fill_stream", "forget_last_record")
"""What is asked for by a person, once, and reads all that is stored; and the one record of a log without streams."""
CHOSEN = ("read_workers",)
"""What reads a table only if it is asked to, and else takes no step through it; see the test of ended workers."""
ENDED = """
    INSERT INTO worker (id, name, hosts, started_at, beats, locked, ended_at, died)
    VALUES (?, 'w', zeroblob(2000), 1, 0, 1, 5, 1)
"""


@pytest.fixture(scope="module")
def connection() -> Iterator[Connection]:
    """A connection to an empty schema, of which tests only ask for plans; as in the engine, without statistics."""
    connection = Connection(SqliteFile(None))
    for script in schema.migrations():
        for statement in schema.statements(script):
            connection.raw.execute(statement)
    yield connection
    connection.close()


def _plan(connection: Connection, sql: str) -> list[str]:
    bare = re.sub(r"--[^\n]*", "", sql)
    names = re.findall(r":(\w+)", bare)
    numbers = [int(number) for number in re.findall(r"\?(\d+)", bare)]
    given = dict.fromkeys(names, 0) if names else [0] * max(numbers, default=bare.count("?"))
    return [row[3] for row in connection.raw.execute(f"EXPLAIN QUERY PLAN {sql}", given)]


@pytest.mark.parametrize("name", sorted(name for name in load("sqlite") if not name.startswith(("create_", "drop_"))))
@pytest.mark.parametrize("rows", [1, 256])
def test_rule_8_a_named_query_reads_through_no_table(connection: Connection, name: str, rows: int) -> None:
    if name in BUILT:
        pytest.skip("its conditions are built; see below")
    if name in WHOLE + CHOSEN:
        pytest.skip("it reads all that is stored")
    query = load("sqlite")[name]
    plan = _plan(connection, alone(query)[0] if rows == 1 else repeated(query, rows))
    assert [step for step in plan if READ_THROUGH.search(step)] == []


@pytest.mark.parametrize(
    ("search", "step"),
    [
        (Search(), "SCAN main.process"),  # in the order of the ids, ended by the limit
        (Search(ids=(b"1" * 16,)), "SEARCH main.process USING PRIMARY KEY (id=?)"),
        (Search(ids=(b"1" * 16, b"2" * 16)), "SEARCH main.process USING PRIMARY KEY (id=?)"),
        (Search(ids=(b"1" * 16, b"2" * 16), kind="order"), "SEARCH main.process USING PRIMARY KEY (id=?)"),
        (
            Search(ids=(b"1" * 16, b"2" * 16), statuses=(Status.FAILED,)),
            "SEARCH main.process USING PRIMARY KEY (id=?)",
        ),
        (
            Search(kind="perdure/operation", statuses=(Status.RUNNING,), before_id=b"1" * 16),
            "SEARCH main.process USING INDEX process_operation (id<?)",
        ),
        (Search(kind="order", key="order/1"), "SEARCH main.process USING INDEX process_key (kind=? AND key=?)"),
        (
            Search(kind="order", key_prefix="or"),
            "SEARCH main.process USING INDEX process_key (kind=? AND key>? AND key<?)",
        ),
        (Search(statuses=(Status.BROKEN,)), "SEARCH main.process USING INDEX process_rested (status=?)"),
        (Search(statuses=(Status.FAILED, Status.HELD)), "SEARCH main.process USING INDEX process_rested (status=?)"),
        (Search(statuses=(Status.COMPLETED,)), "SCAN main.process"),
        (Search(before_id=b"1" * 16), "SEARCH main.process USING PRIMARY KEY (id<?)"),
    ],
    ids=str,
)
def test_a_search_uses_the_index_that_is_there_for_it(connection: Connection, search: Search, step: str) -> None:
    built = _conditions(search)
    assert built is not None
    where, given = built
    sql = load("sqlite")["search_processes"].replace("/* conditions */", where)
    plan = [row[3] for row in connection.raw.execute(f"EXPLAIN QUERY PLAN {sql}", [*given, 10])]
    assert step in plan


def test_who_lives_is_told_in_as_many_steps_however_many_workers_have_ended(connection: Connection) -> None:
    asked = (
        ("read_workers", {"ended": 0}),
        ("forget_workers", {"before": 4}),
        ("tick", {"mark": 1, "machine": 1, "due": 0, "done": 0}),
        ("count_beat", {"figures": None, "due_at": 1, "id": b"1" * 16}),
    )

    def steps() -> dict[str, int]:
        return {name: _steps(connection, load("sqlite")[name], given) for name, given in asked}

    without = steps()
    connection.raw.executemany(ENDED, [(n.to_bytes(16),) for n in range(500)])
    more = {name: taken - without[name] for name, taken in steps().items() if taken > without[name] + 20}
    connection.raw.execute("ROLLBACK")
    assert more == {}, "it read through the workers that have ended"


def _steps(connection: Connection, sql: str, given: dict[str, object]) -> int:
    """How many instructions of its own machine SQLite runs for a query: rows it reads cost some each."""
    taken = 0

    def step() -> None:
        nonlocal taken
        taken += 1

    connection.raw.set_progress_handler(step, 1)
    connection.raw.execute(sql, given).fetchall()
    connection.raw.set_progress_handler(None, 1)
    return taken


def test_many_that_failed_are_read_page_by_page_and_no_page_sorts_all_of_them(connection: Connection) -> None:
    search = Search(kind="order", statuses=(Status.FAILED,), before_id=b"1" * 16)
    built = _conditions(search, walk=True)
    assert built is not None
    sql = load("sqlite")["search_newest"].replace("/* conditions */", built[0])
    plan = [row[3] for row in connection.raw.execute(f"EXPLAIN QUERY PLAN {sql}", [b"2", 10, *built[1], 10])]
    assert [step for step in plan if step.startswith("SEARCH")] == [
        "SEARCH main.process USING PRIMARY KEY (id>? AND id<?)",
        "SEARCH main.process USING PRIMARY KEY (id<?)",
    ]
    assert not any("TEMP B-TREE" in step for step in plan)


def test_few_that_failed_are_found_by_their_index_before_anything_is_packed(connection: Connection) -> None:
    built = _conditions(Search(statuses=(Status.FAILED,)))
    assert built is not None
    sql = load("sqlite")["search_noticed"].replace("/* conditions */", built[0])
    plan = [row[3] for row in connection.raw.execute(f"EXPLAIN QUERY PLAN {sql}", [*built[1], 10])]
    assert [step for step in plan if step.startswith("SEARCH")] == [
        "SEARCH process USING INDEX process_rested (status=?)",
        "SEARCH main.process USING PRIMARY KEY (id=?)",
    ]


@pytest.mark.parametrize("end", ["", "_backward"])
def test_published_values_of_one_name_are_found_by_a_seek(connection: Connection, end: str) -> None:
    plan = _plan(connection, load("sqlite")[f"read_published{end}"])
    found, read = (step for step in plan if step.startswith("SEARCH"))
    assert "INDEX event_published (name=? AND process=? AND run=? AND number" in found
    assert "PRIMARY KEY (process=? AND run=? AND number=?)" in read


def test_the_first_answer_to_a_call_is_found_by_a_seek(connection: Connection) -> None:
    plan = _plan(connection, load("sqlite")["read_answers"])
    read, found = (step for step in plan if step.startswith("SEARCH"))
    assert "INDEX event_published (name=? AND process=? AND run>?)" in found
    assert "PRIMARY KEY (process=? AND run=? AND number=?)" in read
