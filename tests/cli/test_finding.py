"""What an operator finds: processes by a query, failures by cause, and what is unfinished by who moves it."""

from __future__ import annotations

import asyncio

import pytest
from rich.console import Console

from perdure import Engine, ProcessFailed, Search
from perdure.authoring.operation.plan import OperationStatus
from perdure.cli.operation import _progress
from tests.cli import till
from tests.cli.conftest import Working
from tests.cli.terminal import Terminal


async def some(engine: Engine) -> None:
    """Two that have failed alike, one that has completed, one that waits."""
    for number in (1, 2):
        failed = await engine.start(till.refusal.options(key=f"R-{number}"), f"no bread for {number}")
        with pytest.raises(ProcessFailed):
            await failed.result(10)
    await (await engine.start(till.sale.options(key="A-1"), "A-1", 2)).result(10)
    await engine.start(till.approval.options(key="A-2"), "A-2")
    while [view.mover for view in await engine.list(Search(kind="approval"))] != ["message"]:
        await asyncio.sleep(0.01)


def test_failures_are_listed_by_cause_and_a_fingerprint_leads_to_the_processes(
    terminal: Terminal, working: Working
) -> None:
    working(some)
    said = terminal("failures")
    assert said.code == 0
    assert said.has("2 2", "refusal", "ValueError: no bread for …")
    assert said.has("2 processes have failed or are broken, by 1 causes")
    [group] = terminal("failures", "kind = refusal", "--json").json
    listed = terminal("ps", "--where", f"fingerprint = {group['fingerprint']}")
    assert listed.has("R-1") and listed.has("R-2") and not listed.has("A-1")
    assert terminal("failures", "error = KeyError").has("nothing has failed or is broken")
    [group] = terminal("failures", "--by", "worker", "--json").json
    said = terminal("failures", "--by", "worker")
    assert said.has(group["worker"]) and said.has("2 processes have failed or are broken on 1 workers, by 1 causes")
    assert terminal("ps", "--where", f'worker = "{group["worker"]}" and status = failed').has("R-1")


def test_the_board_counts_what_is_unfinished(terminal: Terminal, working: Working) -> None:
    working(some)
    said = terminal("board")
    assert said.code == 0 and said.has("approval message 1 0")
    assert [line["mover"] for line in terminal("board", "--json").json] == ["message"]
    assert terminal("board", "kind = sale").has("no process is unfinished")


def test_a_query_that_is_wrong_is_shown_where(terminal: Terminal) -> None:
    for command in (("ps", "--where"), ("failures",), ("board",)):
        said = terminal(*command, "stats = failed")
        assert said.code == 2 and "Did you mean 'status'" in said.err


def test_a_list_of_operations_or_check_runs_that_was_cut_says_so(terminal: Terminal) -> None:
    for _ in range(2):
        assert terminal("operation", "start", "retry", "kind = refusal").code == 0
        assert terminal("check", "run").code == 0
    for command in (("operation", "ls"), ("check", "show")):
        assert terminal(*command, "--limit", "1").has("no more than 1 are listed: --limit")
        assert len(terminal(*command, "--limit", "1", "--json").json) == 1
        assert "are listed" not in terminal(*command).out
        assert len(terminal(*command, "--json").json) == 2


def test_an_operation_is_previewed_started_and_looked_at(terminal: Terminal, working: Working) -> None:
    working(some)
    query = "kind = refusal"
    said = terminal("operation", "start", "retry", query, "--dry-run")
    assert said.code == 0 and said.has("retry: 2 processes")
    assert terminal("operation", "ls").has("there has been no operation")
    said = terminal("operation", "start", "retry", query, "--watch", "0s", "--why", "the bread is here")
    assert said.code == 0
    id = said.out.split()[2].rstrip(";")

    async def ended(engine: Engine) -> None:
        await engine.operations.handle(id).result(10)

    working(ended)
    assert terminal("operation", "show", id).has("done", "2 processes")
    assert terminal("operation", "ls").has(id, "done 2") and "--limit" not in terminal("operation", "ls").out
    assert terminal("operation", "pause", id).code == 1, "it has ended"
    assert terminal("operation", "start", "retyr", query).code == 2


def test_what_is_no_operation_and_no_check_run_is_refused(sqlite_terminal: Terminal) -> None:
    id = sqlite_terminal("start", "tests.cli.till:approval", "A-2", "--json").json["id"]
    for verb in ("show", "pause", "resume", "abort", "undo"):
        said = sqlite_terminal("operation", verb, id)
        assert (said.code, said.out) == (2, "") and "`perdure operation ls` lists what there is" in said.err
    for verb in ("show", "cancel"):
        said = sqlite_terminal("check", verb, id)
        assert (said.code, said.out) == (2, "") and "`perdure check show` lists what there is" in said.err


def test_an_operation_is_taken_back_and_watched(terminal: Terminal, working: Working) -> None:
    working(some)
    id = ""

    async def held(engine: Engine) -> None:
        nonlocal id
        operation = await engine.operations.start("hold", "kind = approval", watch=0)
        id = operation.id
        assert (await operation.result(10)).done == 1

    working(held)
    assert terminal("operation", "show", id, "--watch").has("done", "1 of 1 processes")
    assert terminal("operation", "undo", id, "--dry-run").has("undo: 1 processes")
    assert terminal("operation", "undo", id, "--dry-run", "--json").json["would"] == 1
    undo = terminal("operation", "undo", id, "--why", "the wrong one").out.split()[2].rstrip(";")

    async def ended(engine: Engine) -> None:
        assert (await engine.operations.handle(undo).result(10)).done == 1

    working(ended)
    assert terminal("operation", "undo", undo).code == 1, "an undo is not taken back"


def test_an_operation_and_a_check_run_that_were_ended_as_processes_have_ended(
    terminal: Terminal, working: Working
) -> None:
    working(some)
    ids: list[str] = []

    async def under_way(engine: Engine) -> None:
        operation = await engine.operations.start("hold", "kind = approval", watch=3600)
        while (await operation.status()).phase != "watching":
            await asyncio.sleep(0.01)
        ids.append(operation.id)

    working(under_way)
    ids.append(terminal("check", "run").out.split()[3].rstrip(";"))
    for id in ids:
        assert terminal("terminate", id, "--why", "the wrong one").code == 0
    operation, run = ids
    said = terminal("operation", "show", operation, "--watch")
    assert said.code == 0 and said.has("phase aborted") and said.has("done 1 of 1 processes")
    assert said.has("stopped its process has been cancelled: terminated by", "because: the wrong one")
    assert terminal("operation", "ls").has(operation, "aborted 1")
    said = terminal("check", "show", run)
    assert said.has("phase cancelled") and said.has("cancelled its process has been cancelled: terminated by")
    assert terminal("operation", "undo", operation, "--dry-run").has("undo: 1 processes")
    undo = terminal("operation", "undo", operation, "--json").json["id"]

    async def ended(engine: Engine) -> None:
        assert (await engine.operations.handle(undo).result(10)).done == 1

    working(ended)


def test_a_bar_fits_into_eighty_columns() -> None:
    console = Console(width=80)
    for phase in ("running", "watching the canary"):
        with console.capture() as captured:
            console.print(_progress(OperationStatus(phase, done=99_999, planned=100_000)))
        [line] = captured.get().splitlines()
        assert phase in line and "99,999/100,000" in line


def test_what_a_verb_needs_is_given_at_the_terminal(terminal: Terminal, working: Working) -> None:
    working(some)
    query = "kind = refusal"
    for verb, given in {
        "edit-input": ("--value", '["other"]', "--restart"),
        "remove": ("--force",),
        "restart": (),
    }.items():
        assert terminal("operation", "start", verb, query, *given, "--dry-run").has(f"{verb}: 2 processes")
    said = terminal("operation", "start", "skip", query, "--dry-run")
    assert said.code == 2 and "needs a step" in said.err
