"""Rehearsal, export and import at the terminal: their texts, their files and their exit codes."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure import Engine
from perdure.authoring.workflow import DEFINED
from tests.cli import till
from tests.cli.conftest import Working
from tests.cli.terminal import Terminal

OTHER = """
from perdure import receive, step, workflow

@step
async def put_on_scales(order: str) -> str: ...

@workflow(version="VERSION")
async def noted_approval(order: str) -> str:
    return await put_on_scales(order) + await receive("yes", str)
"""


async def some(engine: Engine) -> None:
    """Two that wait, with a first step in their histories, and one that has completed."""
    for key in ("N-1", "N-2"):
        handle = await engine.start(till.noted_approval.options(key=key, attributes={"card": "number 4711"}), key)
        while "signal yes" not in (await handle.status()).waiting:
            await asyncio.sleep(0.01)
    await (await engine.start(till.sale.options(key="A-1"), "A-1", 2)).result(10)


@pytest.fixture
def other(tmp_path: Path) -> Iterator[str]:
    """A module with other code for the same workflow, which no other test is to meet."""
    before = dict(DEFINED)
    origin = "tests.cli.till:noted_approval"
    file = tmp_path / "other.py"
    file.write_text(OTHER.replace("VERSION", origin), encoding="utf-8")
    yield str(file)
    DEFINED.clear()
    DEFINED.update(before)


def test_a_rehearsal_says_what_fits_and_what_does_not(terminal: Terminal, working: Working, other: str) -> None:
    working(some)
    said = terminal("rehearse", "tests.cli.till")
    assert (said.code, said.out) == (0, "all 2 processes fit the code\n")
    said = terminal("rehearse", other)
    assert said.code == 1
    assert said.has(
        "2 noted_approval tests.cli.till:noted_approval", "event 1 note:1", "HistoryMisfit", "put_on_scales"
    )
    assert said.has("2 of 2 processes do not fit the code, by 1 causes")
    found = terminal("rehearse", other, "--where", "key = N-1", "--json")
    assert (found.code, found.json["total"], found.json["unfit"]) == (1, 1, 1)
    assert found.json["misfits"][0]["event"] == 1
    assert terminal("rehearse", other, "--kind", "sale").has("no process fits the query: nothing was rehearsed")
    [misfit] = terminal("rehearse", "tests.cli.till", "--code", "9", "--json").json["misfits"]
    assert misfit["type"] == "NotHosted"


def test_an_export_is_rehearsed_and_imported_once(
    terminal: Terminal, working: Working, other: str, tmp_path: Path
) -> None:
    working(some)
    file = tmp_path / "all.jsonl"
    file.write_text(terminal("export").out, encoding="utf-8")
    assert terminal.bare("rehearse", "tests.cli.till", "--file", str(file)).out == "all 3 processes fit the code\n"
    assert terminal.bare("rehearse", other, "--file", str(tmp_path)).code == 1
    away = f"sqlite:///{tmp_path}/away.db"
    assert terminal.bare("migrate", "--url", away).code == 0
    said = Terminal(away)("import", str(file))
    assert (said.code, said.out) == (0, "3 processes taken, 0 were here already\n")
    assert Terminal(away)("import", str(file)).has("0 processes taken, 3 were here already")
    assert Terminal(away)("ps").has("A-1", "sale", "completed")


def test_a_field_of_an_argument_is_redacted_though_its_line_has_no_names(terminal: Terminal, working: Working) -> None:
    async def delayed(engine: Engine) -> None:
        item = till.Item("number 4711", 1299)
        await engine.start(till.sale.options(key="A-1", delay=3600), "A-1", 2, item)

    working(delayed)
    for path, kept in (("input.item.name", True), ("input.2.name", True), ("input.name", False), ("input.itm", False)):
        said = terminal("export", "--redact", path)
        assert said.code == 0 and f'"redacted":["{path}"]' in said.out
        assert "4711" not in said.out and ('"cents":1299' in said.out) is kept


def test_an_import_tells_each_line_that_it_refuses(terminal: Terminal, working: Working, tmp_path: Path) -> None:
    working(some)
    lines = terminal("export", "--redact", "input,attributes.card", "--redact", "events").out.splitlines(True)
    assert "number 4711" not in "".join(lines)
    file = tmp_path / "some.jsonl"
    file.write_text("".join([*lines, lines[0][:99]]), encoding="utf-8")
    away = f"sqlite:///{tmp_path}/away.db"
    assert terminal.bare("migrate", "--url", away).code == 0
    said = Terminal(away)("import", str(file))
    assert said.code == 1 and said.has("1 processes taken, 0 were here already")
    assert said.has("line 2 refused", "would go on with redacted values (input, attributes.card, events)")
    assert said.has("line 4 refused: line 4 is no line of an export, or was cut")
    assert len(Terminal(away)("import", str(file), "--json").json["refused"]) == 3


def test_a_folder_is_imported_file_by_file_and_what_is_refused_is_told_by_its_file(
    terminal: Terminal, working: Working, tmp_path: Path
) -> None:
    working(some)
    lines = terminal("export").out.splitlines(True)
    folder = tmp_path / "archive"
    folder.mkdir()
    (folder / "2026-01-02-b.jsonl").write_text(lines[1] + lines[2][:99], encoding="utf-8")
    (folder / "2026-01-01-a.jsonl.gz").write_bytes(gzip.compress((lines[0] + lines[2]).encode()))
    (folder / ".2026-01-03-c.jsonl.part").write_text("not finished", encoding="utf-8")
    away = f"sqlite:///{tmp_path}/away.db"
    assert terminal.bare("migrate", "--url", away).code == 0
    said = Terminal(away)("import", str(folder))
    assert (said.code, said.has("3 processes taken, 0 were here already")) == (1, True)
    assert said.has("2026-01-02-b.jsonl, line 2 refused: line 2 is no line of an export, or was cut")
    [refused] = Terminal(away)("import", str(folder), "--json").json["refused"]
    assert (refused["file"], refused["line"]) == ("2026-01-02-b.jsonl", 2)
    empty = tmp_path / "empty"
    empty.mkdir()
    for wrong in (empty, tmp_path / "nothing"):
        said = Terminal(away)("import", str(wrong))
        assert said.code == 2 and "no folder with *.jsonl files" in said.err
