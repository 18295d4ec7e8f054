"""Hundreds of hostile strings in every field that a user can reach: both stores give the same verdict on each."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest
from msgspec import json

from perdure import Search
from perdure.authoring.registry import Registry
from perdure.client import validation
from perdure.client.handle import Handle
from perdure.engine import Engine
from perdure.errors import DefinitionError, InvalidInput, PerdureError, ProcessFailed
from perdure.kernel.child import queue_kind
from perdure.kernel.failure import safe_text
from perdure.kernel.names import id_text
from perdure.kernel.payload import decode
from perdure.kernel.transition import Sender
from perdure.limits import ERROR_TEXT_BYTES, NAME_BYTES
from tests.input.door import LIMIT
from tests.input.hostile import STRINGS
from tests.input.within import FIELDS, KEPT, fail, give_back, hear, kinds, told, within

FEWEST = 500
REFUSALS = ("InvalidKey: ", "PayloadError: ", "PayloadTooLarge: ", "DefinitionError: ")
AT_ONCE = 100
WHOLE = os.environ.get("PERDURE_HOSTILE") == "all"
SOME = STRINGS if WHOLE else tuple(text for number, text in enumerate(STRINGS) if number % 3)
"""Enough of them, for what takes a whole process for each."""
ASKED = 1 if WHOLE else 7
"""Of the ways to ask for something by a hostile name each string takes one in so many."""
Said = dict[str, str]
"""What became of each string."""


def ready(url: str) -> Engine:
    """A client that makes its database."""
    return Engine(url, workflows=[hear], migrate=True)


@pytest.fixture
async def engines(sqlite_url: str, postgres_url: str) -> AsyncIterator[list[Engine]]:
    """An engine that works, on each store."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(Engine(url, work=True, workflows=[within, hear, give_back, fail]))
            for url in (sqlite_url, postgres_url)
        ]


Ask = Callable[[Engine, int, str], Awaitable[str]]


async def on_both(engines: list[Engine], ask: Ask, texts: Sequence[str] = STRINGS) -> Said:
    """Ask both stores about these strings; what both say of each, which must be the same."""
    sqlite, postgres = [await _all(engine, ask, texts) for engine in engines]
    for text in texts:
        assert (text, sqlite[text]) == (text, postgres[text])
    return sqlite


async def _all(engine: Engine, ask: Ask, texts: Sequence[str]) -> Said:
    async def one(text: str) -> str:
        try:
            return await ask(engine, _NUMBERS[text], text)
        except PerdureError as error:
            return told(error)

    said: list[str] = []
    for first in range(0, len(texts), AT_ONCE):
        said += await asyncio.gather(*map(one, texts[first : first + AT_ONCE]))
    return dict(zip(texts, said, strict=True))


_NUMBERS = {text: number for number, text in enumerate(STRINGS)}


def check_verdicts(said: Iterable[str]) -> None:
    """Each is kept, or refused at the door by an error of ours that says what to do."""
    for one in said:
        assert one == KEPT or one.startswith(REFUSALS), one
        assert one == KEPT or one.rstrip(".").count(". "), one
        assert one.isprintable(), ascii(one)


def test_there_are_more_than_five_hundred_strings() -> None:
    assert len(STRINGS) == len(set(STRINGS)) >= FEWEST


@pytest.mark.timeout(300)
async def test_every_field_of_workflow_code_gives_the_same_verdict_on_both_stores(engines: list[Engine]) -> None:
    async def ask(engine: Engine, number: int, text: str) -> str:
        handle = await engine.start(within, number)
        said: Said = await handle.result(LIMIT * 3)
        await _check_from_outside(engine, handle.id, number, text, said)
        return json.encode(said).decode()

    verdicts = [json.decode(one) for one in (await on_both(engines, ask, SOME)).values()]
    for name in FIELDS:
        check_verdicts(said[name] for said in verdicts)
        assert sum(said[name] == KEPT for said in verdicts) * 2 > len(verdicts) >= FEWEST


async def _check_from_outside(engine: Engine, id: str, number: int, text: str, said: Said) -> None:
    """What the code's fields say that they kept is read back by a client, and found by a search."""
    view = await engine.process(id).status()
    if said["state"] == KEPT:
        assert view.state == text
    if said["attribute value"] == KEPT:
        assert view.attributes["value"] == text
        if number % 16 == 0:  # for a search by attributes all rows are read
            found = await engine.store.search(Search(attributes=(("value", json.encode(text).decode()),)))
            assert [id_text(one.id) for one in found] == [id]
    if said["attribute name"] == KEPT:
        assert text == "value" or view.attributes[text] == number
    if said["published name"] == KEPT and text not in ("value", "beaten"):
        assert await engine.process(id).value(text) == number
    if said["published value"] == KEPT:
        assert await engine.process(id).value("value") == text
    names = {event.name for event in await engine.process(id).history()}
    for field in ("step name", "patch name", "signal told"):
        assert said[field] != KEPT or text in names
    if said["queue, label and share"] == KEPT:
        tasks = await engine.store.search(Search(kind=queue_kind(text)))
        assert [(task.code, task.share) for task in tasks] == [(text, text)]


async def test_keys_signals_inputs_and_attributes_come_back_or_are_refused_alike(engines: list[Engine]) -> None:
    async def ask(engine: Engine, number: int, text: str) -> str:
        handle = await engine.start(hear.options(key=text, attributes={text: text}, signal=(text, text, text)), text)
        assert await engine.process(handle.id).signal(text, "again", key=text, who=text, why=text) in (
            "duplicate",
            "finished",
        )
        assert await handle.result(LIMIT * 3) == [text, text]
        again = await engine.start(hear.options(key=text), text)
        assert (again.id, again.created, (await engine.handle(hear, text)).id) == (handle.id, False, handle.id)
        return KEPT

    said = await on_both(engines, ask)
    check_verdicts(said.values())
    for engine in engines:
        rows = await engine.store.search(Search(kind=hear.name, limit=len(STRINGS)))
        assert {row.key for row in rows} == {text for text, one in said.items() if one == KEPT}
        for text in STRINGS:
            assert [row.key for row in await engine.store.search(Search(key=text))] == [text] * (said[text] == KEPT)


async def test_kinds_and_versions_come_back_or_are_refused_alike(sqlite_url: str, postgres_url: str) -> None:
    made = kinds()
    check_verdicts(told(one) for one in made.values() if isinstance(one, DefinitionError))
    flows = {text: flow for text, flow in made.items() if not isinstance(flow, DefinitionError)}
    for url in (sqlite_url, postgres_url):
        async with Engine(url, registry=Registry(*flows.values()), migrate=True) as engine:
            await asyncio.gather(*(engine.start(flow, text) for text, flow in flows.items()))
            rows = await engine.store.search(Search(limit=len(STRINGS)))
            assert {(row.kind, row.code, decode(row.input)[0]) for row in rows} == {(text,) * 3 for text in flows}
            assert await engine.count() == {text: {"running": 1} for text in flows}
            for text in STRINGS:
                assert [view.kind for view in await engine.list(Search(kind=text))] == [text] * (text in flows)


async def test_results_and_errors_of_processes_come_back_or_fail_them_alike(engines: list[Engine]) -> None:
    async def ask(engine: Engine, number: int, text: str) -> str:
        failed = await engine.start(fail, number)
        with pytest.raises(ProcessFailed) as caught:
            await failed.result(LIMIT * 3)
        assert caught.value.detail == safe_text(text, ERROR_TEXT_BYTES)
        given = await engine.start(give_back, number)
        try:
            assert await given.result(LIMIT * 3) == text
        except ProcessFailed as error:
            return f"{error.type}: {error.detail}"
        return KEPT

    check_verdicts((await on_both(engines, ask)).values())


async def test_who_and_why_are_recorded_with_what_steers_a_terminal_escaped(sqlite_url: str, postgres_url: str) -> None:
    async def ask(engine: Engine, number: int, text: str) -> str:
        handle = await engine.start(hear, "")
        command = (handle.hold, handle.terminate)[number % 2]
        await command(who=text, why=text, origin=text)
        [event] = await engine.process(handle.id).history()
        expected = Sender(*(safe_text(text, limit) for limit in (NAME_BYTES, ERROR_TEXT_BYTES, NAME_BYTES)))
        assert event.payload == expected.encode()
        return expected.encode().decode()

    async with ready(sqlite_url) as sqlite, ready(postgres_url) as postgres:
        await on_both([sqlite, postgres], ask)


async def test_whatever_is_asked_for_by_a_hostile_name_is_answered_alike(engines: list[Engine]) -> None:
    handles = {id(engine): await engine.start(fail.options(key="known"), 0) for engine in engines}

    async def ask(engine: Engine, number: int, text: str) -> str:
        known = handles[id(engine)].id
        ways = (
            lambda: _found(engine, Search(key_prefix=text, kind="hostile/none")),
            lambda: _found(engine, Search(kind=text, key=text)),
            lambda: _found(engine, Search(attributes=((text, '"x"'),))),
            lambda: _found(engine, Search(attributes=(("x", text),))),
            lambda: engine.handle(text, "known"),
            lambda: engine.handle("hostile/fail", text),
            lambda: engine.start(text),
            lambda: engine.process(text).status(),
            lambda: engine.process(known).value(text, default=None),
            lambda: _ordered(engine, Handle.set_result, text, 1),
            lambda: _ordered(engine, Handle.restart_from, text),
            lambda: _ordered(engine, Handle.skip, text),
            lambda: _ordered(engine, Handle.fork, text),
        )
        said = []
        for way in ways[number % ASKED :: ASKED]:
            try:
                said.append(repr(await way()))
            except PerdureError as error:
                said.append(told(error))
        return "\n".join(said)

    for engine in engines:
        with pytest.raises(ProcessFailed):
            await handles[id(engine)].result(LIMIT)
    said = await on_both(engines, ask)
    assert all(line.isprintable() for one in said.values() for line in one.split("\n"))


async def _ordered(engine: Engine, verb: Callable[..., Awaitable[None]], step: str, *value: int) -> str:
    """A command about that step of a process that has failed; a step that is named with a place may be there."""
    handle = await engine.start(fail, 0)
    with pytest.raises(ProcessFailed):
        await handle.result(LIMIT * 3)
    try:
        await verb(handle, step, *value)
    except PerdureError as error:
        return told(error).replace(handle.id, "ID")
    return "ordered"


async def _found(engine: Engine, search: Search) -> int:
    return len(await engine.store.search(validation.search(search)))


async def test_queues_named_or_blocked_by_hostile_text_are_shown_as_they_were_named(
    sqlite_url: str, postgres_url: str
) -> None:
    shown: list[Any] = []
    for url in (sqlite_url, postgres_url):
        async with ready(url) as engine:
            said = {}
            for text in STRINGS[:: len(STRINGS) // 100]:
                try:
                    view = await engine.queues.block(text, who=text, why=text, origin=text)
                    said[text] = (view.name == text, view.blocked_by, view.blocked_why, view.who, view.why, view.origin)
                except InvalidInput as error:
                    said[text] = told(error)
            shown.append(said)
    assert shown[0] == shown[1]


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is logged as an error by what these strings do."""
    caplog.set_level(logging.ERROR, "perdure")
