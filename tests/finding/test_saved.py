"""Saved searches: a query has a name, and every query may use it, on both stores."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from perdure import Search, Status, limits
from perdure.client.finding.finder import Finder
from perdure.client.finding.grammar import references
from perdure.client.finding.saved import NOTE
from perdure.errors import InvalidInput, PayloadError
from perdure.kernel.note import Note
from tests.finding.test_finding import keys, some_of_each
from tests.runtime.conftest import LIMIT, Open


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("@late", ["late"]),
        ("not @late and (@a.b-c or kind = x)", ["late", "a.b-c"]),
        ("  @late  ", ["late"]),
        ("kind = @bank and kind in (@bank, @late) and key != @x", []),
        ("message ~ '@late' and kind = '@late'", []),
        ("", []),
    ],
)
def test_a_query_names_searches_where_it_could_name_a_field(query: str, names: list[str]) -> None:
    assert [name for _, _, name in references(query)] == names
    assert [query[start:end] for start, end, _ in references(query)] == [f"@{name}" for name in names]


async def test_a_saved_search_is_used_by_every_query_until_it_is_removed(opened: Open) -> None:
    engine = await some_of_each(opened)
    saved = await engine.searches.save("refused", "error = CardRefused or step = charge and message ~ bank", who="Ann")
    assert (saved.name, saved.who) == ("refused", "Ann") and saved.at is not None
    assert keys(await engine.list(where="@refused and attributes.n > 0")) == {"payment A-1", "payment A-2"}
    assert await engine.count(where="not @refused and status = failed") == {
        "payment": {"failed": 1}, "shipment": {"failed": 1},
    }  # fmt: skip
    assert sum(group.count for group in await engine.failures("@refused")) == 3
    await engine.searches.save("late", "@refused and attributes.n = 2")
    await engine.searches.save("refused", "error = CardRefused")
    assert keys(await engine.list(where="@late")) == {"payment A-2"}, "it keeps what the other one meant"
    assert keys(await engine.list(where="@refused")) == {"payment A-0", "payment A-1"}
    assert [one.name for one in await engine.searches.list()] == ["late", "refused"]
    await engine.searches.remove("late")
    with pytest.raises(InvalidInput, match=r"no saved search 'late'.* There are refused"):
        await engine.list(where="@late")


async def test_an_operation_and_a_check_run_keep_what_the_name_meant(opened: Open) -> None:
    engine = await some_of_each(opened)
    await engine.searches.save("odd", "error = ValueError")
    assert (await engine.operations.preview("retry", "@odd and kind = payment")).would == 1
    operation = await engine.operations.start("retry", "@odd and kind = shipment", watch=0)
    await engine.searches.remove("odd")
    done = await operation.result(LIMIT)
    assert (done.planned, done.done) == (1, 1)
    await engine.searches.save("payments", "kind = payment")
    assert (await engine.checks.preview(where="@payments")).checked == 6
    run = await engine.checks.start(where="@payments")
    assert (await run.result(LIMIT)).checked == 6


async def test_what_cannot_be_saved_is_refused_with_what_to_do(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, _ = await opened()
    for name, query, says in (
        ("a b", "key", "a-z 0-9"),
        ("", "key", "a-z 0-9"),
        ("a", "  ", "needs a query"),
        ("a", "stats = failed", "Did you mean 'status'"),
        ("a", "@b", "There are none"),
        ("a", "@b and 'key", "quotation mark"),
        ("a", None, "a query is a text"),
        ("a", "key = \ud800", "UTF-8"),
    ):
        with pytest.raises(InvalidInput, match=says):
            await engine.searches.save(name, query)
    with pytest.raises(InvalidInput, match="no saved search 'a'"):
        await engine.searches.remove("a")
    monkeypatch.setattr(limits, "SAVED_SEARCH_RECORDS", 1)
    await engine.searches.save("a", "key")
    await engine.searches.save("a", "not key")
    with pytest.raises(InvalidInput, match="limit"):
        await engine.searches.save("b", "key")


async def test_two_programs_that_save_at_once_both_save(opened: Open) -> None:
    engines = [(await opened())[0] for _ in range(2)]
    await asyncio.gather(*(engine.searches.save(f"s{n}", "key") for n, engine in enumerate(engines * 3)))
    assert len(await engines[0].searches.list()) == 6


async def test_a_saved_search_narrows_what_the_database_reads(opened: Open) -> None:
    engine, _ = await opened()
    await engine.searches.save("mine", "key = B-1 and kind = payment")
    finder = Finder(engine.store, Search(), "@mine and status = failed")
    await finder.read()
    assert (finder.search.key, finder.search.kind, finder.search.statuses) == ("B-1", "payment", (Status.FAILED,))


async def test_saved_searches_outlive_a_name_that_is_no_text(opened: Open) -> None:
    engine, _ = await opened()
    await engine.searches.save("mine", "key")
    with pytest.raises(InvalidInput, match="who= is None"):
        await engine.searches.save("other", "key", who=None)  # type: ignore[arg-type]
    await engine.searches.save("another", "key")
    assert [one.name for one in await engine.searches.list()] == ["another", "mine"]


async def test_saved_searches_that_cannot_be_read_are_not_written_over(opened: Open) -> None:
    engine, store = await opened()
    await engine.searches.save("mine", "key")
    [note] = [note for note in await store.records(Note) if note.name == NOTE]
    damaged = replace(note, version=note.version + 1, content='{"searches":{"mine":{"where":"key","who":null,"at":1}}}')
    await store.records(Note, [damaged])
    searches = engine.searches
    for asked in (searches.save("other", "key"), searches.remove("mine"), searches.list(), engine.list(where="@mine")):
        with pytest.raises(PayloadError, match="'saved searches' in the database cannot be read"):
            await asked
    assert damaged in await store.records(Note)
