"""What an operator orders on the command line: hold, resume, restart, set a result, skip, cancel in time."""

from __future__ import annotations

import pytest

from perdure import Engine, ProcessFailed
from tests.cli import till
from tests.cli.conftest import Working
from tests.cli.terminal import Terminal

BY_ANN = ("--who", "Ann", "--why", "she knows")


def test_hold_and_resume_take_several_processes_and_record_who_and_why(terminal: Terminal) -> None:
    for key in ("A-1", "A-2"):
        terminal("start", "tests.cli.till:approval", key, "--key", key)
    assert terminal("hold", "A-1", "A-2", *BY_ANN).out == "approval A-1: held\napproval A-2: held\n"
    assert terminal("show", "A-1").has("held", "by Ann because: she knows")
    assert terminal("history", "A-1").has("held", "by Ann because: she knows")
    said = terminal("hold", "A-1")
    assert said.err == "perdure: cannot hold a process that is held: there is nothing to do\n"
    assert terminal("resume", "A-1", *BY_ANN).out.startswith("approval A-1: goes on in run 1; it is due")
    assert terminal("history", "A-1").has("resumed", "by Ann because: she knows")


def test_restart_opens_a_run_and_the_old_one_can_be_read(terminal: Terminal) -> None:
    terminal("start", "tests.cli.till:approval", "A-1", "--key", "A-1")
    terminal("terminate", "A-1")
    assert terminal("restart", "A-1", *BY_ANN).out.startswith("approval A-1: goes on in run 2; it is due")
    assert terminal("history", "A-1").has("run opened", "restarted from run 1, with none of its events by Ann")
    assert terminal("history", "A-1", "--run", "1").has("terminated")


def test_a_step_gets_its_result_or_is_skipped_and_can_be_run_again(terminal: Terminal, working: Working) -> None:
    async def fail(engine: Engine) -> None:
        for key in ("R-1", "R-2"):
            with pytest.raises(ProcessFailed):
                await (await engine.start(till.refusal.options(key=key), "no")).result(10)

    async def complete(engine: Engine) -> None:
        for key in ("R-1", "R-2"):
            await (await engine.handle("refusal", key)).result(10)

    working(fail)
    assert terminal("set-result", "R-1", "--step", "refuse", "--value", "null", *BY_ANN).has("R-1: goes on in run 2")
    assert terminal("skip", "R-2", "--step", "refuse:1", *BY_ANN).has("R-2: goes on in run 2")
    working(complete)
    assert terminal("history", "R-1").has("set by hand: refuse", "by Ann because: she knows")
    assert terminal("history", "R-2").has("skipped: refuse", "by Ann because: she knows")
    said = terminal("skip", "R-1", "--step", "refuse")
    assert said.err.startswith("perdure: cannot skip a step of a process that is completed")
    assert terminal("restart-from", "R-1", "R-2", "--step", "refuse", *BY_ANN).out.count("goes on in run 3") == 2
    assert terminal("history", "R-1").has("run opened", "restarted at refuse:1 from run 2")


def test_a_fork_is_made_once_for_its_key_and_its_history_says_of_what(terminal: Terminal, working: Working) -> None:
    async def complete(engine: Engine) -> None:
        for key in ("N-1", "N-2"):
            await (await engine.handle("noted_approval", key)).signal("yes", "yes")
            await (await engine.handle("noted_approval", key)).result(10)

    async def begin(engine: Engine) -> None:
        await engine.start(till.noted_approval.options(key="N-1"), "N")

    working(begin)
    fork = ("fork", "N-1", "--key", "N-2", *BY_ANN)
    assert terminal(*fork).has("N-1: process", "has its past")
    assert terminal(*fork).has("has the key already")
    working(complete)
    assert terminal("history", "N-2").has("run opened", "forked from process", "by Ann because: she knows")
    assert terminal("fork", "N-1", "--at", "99").err.startswith("perdure: run 1 has no event 99")


def test_an_input_is_edited_and_the_history_says_by_whom(terminal: Terminal) -> None:
    terminal("start", "tests.cli.till:approval", "A-1", "--key", "A-1")
    edit = ("edit", "A-1", *BY_ANN, "--input")
    assert terminal(*edit, '["A-2"]').out.startswith("approval A-1: goes on in run 2; ")
    assert terminal("history", "A-1").has('begun with another input after run 1, ["A-2"]', "by Ann because: she knows")
    terminal("hold", "A-1")
    assert terminal(*edit, '{"order": "A-3"}').has("has another input; it is still held")
    assert terminal(*edit, "A-4").err.startswith("perdure: --input is no array or object")


def test_only_the_fields_of_a_machine_are_edited_one_by_one(terminal: Terminal) -> None:
    terminal("start", "tests.cli.till:approval", "A-1", "--key", "A-1")
    terminal("hold", "A-1")
    assert "only a machine has fields" in terminal("edit", "A-1", "--field", "balance=5").err
    assert "edit the one or the other" in terminal("edit", "A-1", "--field", "balance=5", "--input", "[]").err
    assert "nothing to edit is given" in terminal("edit", "A-1").err


def test_attributes_are_edited_and_removed_and_the_history_says_by_whom(terminal: Terminal) -> None:
    terminal(
        "start", "tests.cli.till:approval", "A-1", "--key", "A-1", "--attribute", "stage=new", "--attribute", "a=1"
    )
    edit = ("edit", "A-1", *BY_ANN)
    edited = terminal(*edit, "--attribute", "stage=late", "--attribute", "a=null")
    assert edited.out == "approval A-1: has other attributes: stage, a; it is still running\n"
    assert terminal("history", "A-1").has('stage: "new" becomes "late", a: 1 becomes null by Ann because: she knows')
    assert terminal("ps", "--where", "attributes.stage = late").has("A-1")
    assert "edit the one or the other" in terminal(*edit, "--attribute", "a=1", "--input", "[]").err
    assert terminal(*edit, "--attribute", "a").code == 2


def test_priority_and_deadline_are_set_and_the_history_says_by_whom_and_what_they_were(terminal: Terminal) -> None:
    terminal("start", "tests.cli.till:approval", "A-1", "--key", "A-1")
    assert terminal("set-priority", "A-1", "--priority", "1", *BY_ANN).out == "approval A-1: has priority 1\n"
    assert terminal("history", "A-1").has("priority set", "4 becomes 1 by Ann because: she knows")
    assert "0 (first) to 9" in terminal("set-priority", "A-1", "--priority", "10").err
    assert terminal("set-deadline", "A-1", "--deadline", "2h", *BY_ANN).out.startswith(
        "approval A-1: has a deadline, in "
    )
    assert terminal("history", "A-1").has("deadline set", "none becomes 2 h later by Ann because: she knows")
    assert terminal("set-deadline", "A-1", "--deadline", "none").out == "approval A-1: has no deadline\n"
    assert terminal("set-deadline", "A-1", "--deadline", "2999-01-01T00:00Z").has("has a deadline, in ")
    assert "a time with its zone" in terminal("set-deadline", "A-1", "--deadline", "soon").err


def test_a_process_is_moved_to_a_version_that_a_worker_hosts_or_by_force(terminal: Terminal) -> None:
    terminal("start", "tests.cli.till:approval", "A-1", "--key", "A-1")
    assert "no live worker hosts workflow 'approval' version '2'" in terminal("move", "A-1", "--version", "2").err
    moved = terminal("move", "--force", "--version", "2", "A-1", *BY_ANN)
    assert moved.out.startswith("approval A-1: has version '2'; goes on in run 1; it is due")
    assert terminal("history", "A-1").has("version moved", "becomes '2' by Ann because: she knows")
    terminal("hold", "A-1")
    assert terminal("move", "A-1", "--version", "3", "--force").has("has version '3'; it is still held")
    assert terminal("operation", "start", "move", "key = A-1", "--value", "2", "--dry-run").has("would be left out")
    shown = terminal("operation", "start", "set-deadline", "key = A-1", "--value", "2h", "--dry-run")
    assert shown.has("set-deadline: 1 processes")


def test_cancel_with_a_deadline_is_in_the_history_and_on_the_row(terminal: Terminal) -> None:
    terminal("start", "tests.cli.till:approval", "A-1", "--key", "A-1")
    assert terminal("cancel", "A-1", "--deadline", "2h", *BY_ANN).out == "approval A-1: asked to cancel\n"
    assert terminal("ps", "--json").json[0]["deadline"]
    assert terminal("history", "A-1").has("deadline set", "to end within 2 h by Ann because: she knows")
    assert "is not a duration" in terminal("cancel", "A-1", "--deadline", "soon").err
