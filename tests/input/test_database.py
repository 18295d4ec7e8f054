"""What only the database refuses, and databases that cannot be used: told apart, told plainly, neighbours unharmed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from perdure.authoring.step import step
from perdure.authoring.workflow import receive, workflow
from perdure.cli.options import DEFAULT_URL
from perdure.engine import Engine
from perdure.errors import BadRecord, InvalidUrl, ProcessBroken, StoreError, StoreTooNew, StoreTooOld
from perdure.futures import asked
from perdure.kernel import transition
from perdure.kernel.commit import Commit, CommitAnswer, Start, StartAnswer, StartVerdict, Verdict
from perdure.kernel.message import Message, MessageType, SendAnswer
from perdure.kernel.process import Process, Status
from perdure.kernel.transition import Sender
from perdure.store.migrate import steps
from tests.input.door import LIMIT, execute

NOBODY = Sender("", "", "test")


@step
async def polish(n: int) -> int:
    return n


@step
async def poison(n: int) -> int:
    return n


@workflow(name="input/wait")
async def wait() -> Any:
    return await receive("go")


@workflow(name="input/drink")
async def drink(n: int, bad: bool = False) -> int:
    return await (poison(n) if bad else polish(n))


@pytest.fixture
def postgres_url(new_postgres_url: str) -> str:
    """A database of a test's own: what is written into its schema here would harm the next one."""
    return new_postgres_url


@pytest.fixture
def sqlite_url(new_sqlite_url: str) -> str:
    """A file that the first engine makes, if it may."""
    return new_sqlite_url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "perdure.db",
        "redis://localhost/0",
        "sqlite:perdure.db",
        "sqlite:///",
        "sqlite:///folder/",
        "sqlite:///a.db?mode=ro",
        "postgresql://localhost",
        "postgresql://localhost:port/db",
        "postgresql://localhost/db?schema=Upper",
        "postgresql://localhost/db?pooler=session",
    ],
)
def test_a_wrong_url_is_refused_with_the_right_shape(url: str) -> None:
    with pytest.raises(InvalidUrl, match=r"(write|use|as) (sqlite:///|it as postgresql://)"):
        Engine(url)


async def test_a_client_makes_no_database_and_no_schema_unless_it_is_told_to(store_url: str, tmp_path: Path) -> None:
    with pytest.raises(StoreTooOld, match=r"A worker makes .*perdure migrate.*Engine\(migrate=True\)"):
        await Engine(store_url, workflows=[wait]).__aenter__()
    assert list(tmp_path.iterdir()) == []
    async with Engine(store_url, workflows=[wait], migrate=True) as engine:
        assert (await engine.start(wait)).created
    async with Engine(store_url, workflows=[wait]) as engine:
        assert await engine.count() == {"input/wait": {"running": 1}}


async def test_what_is_in_memory_is_made_for_a_client_too() -> None:
    async with Engine("sqlite://:memory:", workflows=[wait]) as engine:
        assert await engine.count() == {}


async def test_engines_and_commands_use_one_database_unless_they_are_given_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PERDURE_URL", raising=False)
    async with Engine(work=True, workflows=[wait]) as engine:
        await engine.start(wait)
    assert DEFAULT_URL == "sqlite:///perdure.db"
    assert (tmp_path / "perdure.db").exists()
    monkeypatch.setenv("PERDURE_URL", "sqlite:///other.db")
    async with Engine(work=True, workflows=[wait]) as engine:
        assert await engine.count() == {}
    assert (tmp_path / "other.db").exists()
    monkeypatch.setenv("PERDURE_URL", "")
    async with Engine() as engine:
        assert await engine.count() == {"input/wait": {"running": 1}}


async def test_a_database_of_a_newer_perdure_is_refused_and_left_alone(store_url: str) -> None:
    async with Engine(store_url, workflows=[wait], migrate=True) as engine:
        await engine.start(wait)
    kind = store_url.partition(":")[0]
    newer, for_newer, older, for_all = {
        "sqlite": (
            "PRAGMA user_version = 99",
            "UPDATE schema_reader SET oldest = 99",
            f"PRAGMA user_version = {len(steps('sqlite'))}",
            "UPDATE schema_reader SET oldest = 1",
        ),
        "postgresql": (
            "INSERT INTO perdure.migration (number, name) VALUES (99, 'of tomorrow')",
            "UPDATE perdure.schema_reader SET oldest = 99",
            "DELETE FROM perdure.migration WHERE number = 99",
            "UPDATE perdure.schema_reader SET oldest = 1",
        ),
    }[kind]
    await execute(store_url, newer)
    await execute(store_url, for_newer)
    for work in (False, True):
        with pytest.raises(StoreTooNew, match=r"99.*upgrade Perdure"):
            await Engine(store_url, work=work, workflows=[wait]).__aenter__()
    await execute(store_url, older)
    await execute(store_url, for_all)
    async with Engine(store_url, workflows=[wait]) as engine:
        assert await engine.count() == {"input/wait": {"running": 1}}


async def test_a_sqlite_path_in_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="check that its folder exists"):
        await Engine(f"sqlite:///{tmp_path}/absent/perdure.db", migrate=True).__aenter__()
    assert list(tmp_path.iterdir()) == []


@workflow(name="input/changed")
async def before(value: str) -> Any:
    await polish(1)
    return await receive("go")


@workflow(name="input/changed")
async def after(value: str) -> Any:
    await poison(1)
    return await receive("go")


@workflow(name="input/changed")
async def retyped(value: int) -> Any:
    await polish(1)
    return await receive("go")


@pytest.mark.parametrize(
    ("code", "said"),
    [(after, r"recorded.*polish.*poison"), (retyped, r"do not fit its signature")],
    ids=["step", "input"],
)
async def test_code_that_does_not_know_the_recorded_step_or_input_breaks_and_keeps_the_bytes(
    store_url: str, code: Any, said: str
) -> None:
    async with Engine(store_url, work=True, workflows=[before]) as first:
        handle = await first.start(before, "text")
        async with asyncio.timeout(LIMIT):
            while (await handle.status()).mover != "message":
                await asyncio.sleep(0)
        kept = (await first.row(handle.id)).input, await first.process(handle.id).history()
    async with Engine(store_url, work=True, workflows=[code, drink]) as second:
        await second.process(handle.id).signal("go", "went")
        with pytest.raises(ProcessBroken, match=said) as broken:
            await second.process(handle.id).result(timeout=LIMIT)
        assert "ring back code that fits" in str(broken.value)
        history = await second.process(handle.id).history()
        assert ((await second.row(handle.id)).input, history[:1]) == (kept[0], list(kept[1]))
        assert await (await second.start(drink, 5)).result(LIMIT) == 5
    async with Engine(store_url, work=True, workflows=[before]) as third:
        await third.process(handle.id).retry(who="anna")
        assert await third.process(handle.id).result(timeout=LIMIT) == "went"


async def _ended(engine: Engine, count: int) -> list[tuple[Process, Commit]]:
    """Fresh processes, each with a commit that would end it."""
    made = []
    for handle in await engine.start_many(wait, [()] * count):
        row = await engine.row(handle.id)
        made.append((row, transition.terminated(row, NOBODY, now=await engine.store.now())))
    return made


@pytest.mark.parametrize("guilty", [0, 3, 6])
async def test_a_commit_that_only_the_database_refuses_is_refused_alone(store_url: str, guilty: int) -> None:
    async with Engine(store_url, workflows=[wait], migrate=True) as engine:
        made = await _ended(engine, 7)
        row, good = made[guilty]
        commits = [commit for _, commit in made]
        commits[guilty] = replace(good, after=replace(good.after, awaiting="a\0b"))
        answers = await asyncio.gather(
            *(asked(engine.committer.commit, commit) for commit in commits), return_exceptions=True
        )
        assert isinstance(answers.pop(guilty), BadRecord)
        assert [isinstance(one, CommitAnswer) and one.verdict for one in answers] == [Verdict.APPLIED] * 6
        assert await engine.row(row.id) == row
        answer = await asked(engine.committer.commit, good)
        assert answer.verdict is Verdict.APPLIED
        assert await engine.count() == {"input/wait": {"cancelled": 7}}


async def test_a_start_or_a_message_that_only_the_database_refuses_is_refused_alone(store_url: str) -> None:
    async with Engine(store_url, workflows=[wait], migrate=True) as engine:
        fresh = [Process(id=engine.machine.new_id(), kind="input/wait", key=None, input=b"[]") for _ in range(5)]
        starts = [Start(process) for process in fresh]
        starts[2] = Start(replace(fresh[2], key="a\0b"))
        begun = await asyncio.gather(*(asked(engine.committer.start, one) for one in starts), return_exceptions=True)
        assert isinstance(begun.pop(2), BadRecord)
        assert [isinstance(one, StartAnswer) and one.verdict for one in begun] == [StartVerdict.CREATED] * 4
        id = fresh[0].id
        messages = [
            Message(engine.machine.new_id(), id, MessageType.SIGNAL, name, b"1", None, None)
            for name in ("a", "b\0", "c")
        ]
        sent = await asyncio.gather(*(asked(engine.committer.send, one) for one in messages), return_exceptions=True)
        assert [type(one) for one in sent] == [SendAnswer, BadRecord, SendAnswer]
        assert (await engine.row(id)).inbox == 2
        assert await engine.count() == {"input/wait": {"running": 4}}


LAWS = {
    "sqlite": (
        "CREATE TRIGGER no_poison BEFORE INSERT ON event WHEN NEW.name = 'poison' "
        "BEGIN SELECT RAISE(ABORT, 'no poison here'); END"
    ),
    "postgresql": "ALTER TABLE perdure.event ADD CONSTRAINT no_poison CHECK (name <> 'poison')",
}
"""What an administrator may forbid without our knowing."""


async def test_a_process_whose_commit_the_database_refuses_is_broken_and_the_others_complete(
    store_url: str,
) -> None:
    async with Engine(store_url, work=True, workflows=[drink]) as engine:
        await execute(store_url, LAWS[store_url.partition(":")[0]])
        handles = await engine.start_many(drink, [(n, n == 4) for n in range(9)])
        results = await asyncio.gather(*(handle.result(LIMIT) for handle in handles), return_exceptions=True)
        broken = results.pop(4)
        assert isinstance(broken, ProcessBroken)
        assert (broken.type, "no poison" in str(broken).replace("_", " ")) == ("BadRecord", True)
        assert results == [0, 1, 2, 3, 5, 6, 7, 8]
        assert await engine.count() == {"input/drink": {Status.BROKEN.value: 1, Status.COMPLETED.value: 8}}
        await handles[4].terminate(who="anna", why="forbidden")
        assert await (await engine.start(drink, 10)).result(LIMIT) == 10
