"""What an operator sees: ps, show and history, on both stores."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from perdure import Engine, ProcessFailed, Search, Status
from tests.cli import till
from tests.cli.conftest import Working
from tests.cli.terminal import Said, Terminal


async def some_of_each(engine: Engine) -> None:
    """One completed, one failed, one waiting for a signal, one waiting for its next attempt."""
    done = await engine.start(till.sale.options(key="A-1", attributes={"customer": "Ann"}), "A-1", 2)
    await done.result(10)
    failed = await engine.start(till.refusal.options(key="R-1"), "no bread")
    with pytest.raises(ProcessFailed):
        await failed.result(10)
    await engine.start(till.approval.options(key="A-2"), "A-2")
    await engine.start(till.faltering.options(key="F-1"))
    while [view.mover for view in await engine.list(Search(kind="faltering"))] != ["timer"]:
        await asyncio.sleep(0.01)


def test_ps_lists_the_newest_first_with_what_each_waits_for(terminal: Terminal, working: Working) -> None:
    working(some_of_each)
    said = terminal("ps")
    assert said.code == 0
    assert said.has("F-1", "running", "the next attempt of step falter")
    assert said.has("A-2", "running", "it waits for signal yes")
    assert said.has("R-1", "failed", "ValueError: no bread")
    assert said.has("A-1 sale completed 1 2")
    keys = [line.split()[0] for line in said.out.splitlines() if "-" in line.split(" ")[0]]
    # The first two were started in one breath: ids of one millisecond have no order.
    assert (sorted(keys[:2]), keys[2:]) == (["A-2", "F-1"], ["R-1", "A-1"])


def test_ps_counts_by_kind_and_status(terminal: Terminal, working: Working) -> None:
    working(some_of_each)
    said = terminal("ps", "--limit", "1")
    assert said.has("1 of 4 processes; the next ones: --before ")
    assert said.has("kind running completed failed")
    assert said.has("approval 1") and said.has("sale 1")
    before = said.out.partition("--before ")[2].split()[0]
    assert terminal("ps", "--before", before).has("3 of 4 processes")
    assert len(terminal("ps", "--before", before, "--json").json) == 3


def test_ps_counts_nothing_as_ended_that_it_lists_as_running(
    terminal: Terminal, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`until perdure ps | grep ended` would end without the line that it waits for."""
    working(some_of_each)

    def then_ended(
        read: Callable[..., Awaitable[object]],
    ) -> Callable[..., Awaitable[object]]:
        async def one_ends_behind(engine: Engine, search: Search, *, where: str) -> object:
            found = await read(engine, search, where=where)
            for view in await store_list(engine, Search(kind="approval", statuses=(Status.RUNNING,))):
                await engine.process(view.id).terminate()
            return found

        return one_ends_behind

    store_list = Engine.list
    monkeypatch.setattr(Engine, "list", then_ended(Engine.list))
    monkeypatch.setattr(Engine, "count", then_ended(Engine.count))
    said = terminal("ps")
    assert said.has("A-2 approval cancelled") and not said.has("A-2 approval running")


@pytest.mark.parametrize(
    ("narrowed", "keys"),
    [
        (["--kind", "sale"], ["A-1"]),
        (["--status", "failed", "--status", "completed"], ["A-1", "R-1"]),
        (["--prefix", "A-"], ["A-1", "A-2"]),
        (["--attribute", "customer=Ann"], ["A-1"]),
        (["--attribute", "customer=Bob"], []),
        (["--since", "1h"], ["A-1", "A-2", "F-1", "R-1"]),
        (["--since", "0s"], []),
    ],
)
def test_ps_shows_only_what_was_asked_for(
    sqlite_terminal: Terminal, working: Working, narrowed: list[str], keys: list[str]
) -> None:
    working(some_of_each)
    assert sorted(view["key"] for view in sqlite_terminal("ps", "--json", *narrowed).json) == keys


def test_show_tells_who_moves_a_process_next_since_when_and_until_when(terminal: Terminal, working: Working) -> None:
    working(some_of_each)
    said = terminal("show", "A-2", "--utc")
    assert said.has("approval A-2 running")
    assert said.has("next message: it waits for signal yes, its timer")
    assert said.has("since ", " UTC)")
    assert said.has("until in ", " UTC)")
    view = terminal("show", "A-2", "--json").json
    since, until = datetime.fromisoformat(view["since"]), datetime.fromisoformat(view["until"])
    assert timedelta(minutes=59) < until - since <= timedelta(minutes=60)
    assert said.has('state {"stage":"waiting"}')
    assert said.has('input ["A-2"]')


def test_show_tells_of_failed_attempts_and_the_next_one(terminal: Terminal, working: Working) -> None:
    working(some_of_each)
    said = terminal("show", "F-1")
    assert said.has("falter 1", "in ", "ConnectionError: the line is dead")
    [tried] = terminal("show", "F-1", "--json").json["retrying"]
    assert (tried["step"], tried["attempt"], tried["failure"]["type"]) == ("falter", 1, "ConnectionError")


def test_show_tells_what_to_do_about_a_failed_process(terminal: Terminal, working: Working) -> None:
    working(some_of_each)
    said = terminal("show", "R-1")
    assert said.has("next nobody: it has failed")
    assert said.has("advice `perdure retry ", "goes on from its last good event")
    assert said.has("error StepError:", "ValueError: no bread")
    assert said.has("step failed: refuse", "ValueError: no bread")


def test_show_tells_whether_the_worker_that_has_it_in_hand_lives(
    terminal: Terminal, working: Working, tmp_path: object
) -> None:
    async def hold(engine: Engine) -> None:
        await engine.start(till.holding.options(key="H-1"), str(tmp_path))
        seen.append(await asyncio.to_thread(terminal, "show", "H-1"))
        seen.append(await asyncio.to_thread(terminal, "show", "H-1", "--json"))

    seen: list[Said] = []
    working(hold)
    people, programs = seen
    assert people.has("next worker: worker ", "holds it")
    assert people.has("worker", "alive; it must beat again in ")
    assert programs.json["worker"]["state"] == "alive"


def test_show_tells_which_steps_are_under_way_and_what_they_report(terminal: Terminal, working: Working) -> None:
    async def copy(engine: Engine) -> None:
        handle = await engine.start(till.copying.options(key="C-1"))
        while (await handle.status()).progress is None:
            await asyncio.sleep(0.01)
        seen.append(await asyncio.to_thread(terminal, "show", "C-1"))

    seen: list[Said] = []
    working(copy)
    [said] = seen
    assert said.has("next worker: worker ", "holds it, running copy")
    assert said.has("copy 1", "ago 1 min 30 s without a heartbeat", '{"copied":7}')


def test_show_tells_of_messages_that_nobody_has_heard(terminal: Terminal) -> None:
    started = terminal("start", "tests.cli.till:approval", "A-3", "--key", "A-3")
    assert started.code == 0
    terminal("signal", "A-3", "yes", "by all means")
    said = terminal("show", "A-3")
    assert said.has("next worker: it is due, and no live worker hosts workflow 'approval'")
    assert said.has("messages not yet heard")
    assert said.has("1", 'yes "by all means"')
    assert terminal("show", "A-3", "--json").json["unheard_messages"][0]["name"] == "yes"
    for number in range(11):
        terminal("signal", "A-3", "no", f"{number}")
    said = terminal("show", "A-3")
    assert said.has("messages not yet heard (10 of 12: perdure show") and not said.has("no 9")
    assert len(terminal("show", "A-3", "--json").json["unheard_messages"]) == 12


def test_history_tells_every_event_in_words(terminal: Terminal, working: Working) -> None:
    async def approve(engine: Engine) -> None:
        handle = await engine.start(till.approval.options(key="A-4"), "A-4")
        await engine.process(handle.id).signal("yes", "go on", who="Ann", why="it is right")
        assert await handle.result(10) == "go on"

    working(approve)
    said = terminal("history", "A-4")
    assert said.has("1", "message received: yes", '"go on" by Ann because: it is right')
    assert said.has("2", "completed")
    events = terminal("history", "A-4", "--json").json
    assert [event["type"] for event in events] == ["message_received", "completed"]
    assert events[0]["sender"] == {"who": "Ann", "why": "it is right", "origin": "client"}
    assert [event["number"] for event in terminal("history", "A-4", "--after", "1", "--json").json] == [2]
    assert terminal("history", "A-4", "--limit", "0").code == 0 and terminal("history", "A-4", "--limit", "1").has(
        "there may be more: --after 1"
    )


def test_history_of_an_earlier_run_stays_readable(terminal: Terminal, working: Working) -> None:
    working(some_of_each)
    assert terminal("retry", "R-1", "--who", "Ann", "--why", "try").code == 0
    assert terminal("history", "R-1").has(
        "run opened", "retried from run 1, with none of its events by Ann because: try"
    )
    assert terminal("history", "R-1", "--run", "1").has("step failed: refuse", "ValueError: no bread")
    assert terminal("history", "R-1", "--run", "3").err == "perdure: there is no run 3: the process is in run 2\n"


def test_a_process_is_named_by_its_id_its_key_or_kind_and_key(terminal: Terminal, working: Working) -> None:
    async def twins(engine: Engine) -> str:
        first = await engine.start(till.sale.options(key="A-5"), "A-5")
        await engine.start(till.approval.options(key="A-5"), "A-5")
        return first.id

    id = working(twins)
    assert terminal("show", id).has("sale A-5")
    assert terminal("show", "sale:A-5").has("sale A-5")
    assert terminal("show", "approval:A-5").has("approval A-5")
    said = terminal("show", "A-5")
    assert said.code == 2
    assert "the key 'A-5' belongs to several processes; name one of " in said.err
    assert "approval:A-5" in said.err and "sale:A-5" in said.err


def test_what_is_stored_cannot_steer_the_terminal(sqlite_terminal: Terminal, working: Working) -> None:
    async def attack(engine: Engine) -> None:
        handle = await engine.start(till.refusal.options(key="X-1"), "\x1b[2J[bold]gone[/bold]\x9b31m")
        with pytest.raises(ProcessFailed):
            await handle.result(10)

    working(attack)
    for verb in ("ps", "show", "history"):
        said = sqlite_terminal(verb, *([] if verb == "ps" else ["X-1"]))
        assert "\x1b" not in said.out and "\x9b" not in said.out
        assert "[bold]gone[/bold]" in said.out


def test_looking_and_starting_create_nothing(new_sqlite_url: str, tmp_path: Path) -> None:
    terminal = Terminal(new_sqlite_url)
    said = terminal("ps")
    assert said.code == 1
    assert said.err.startswith("perdure: there is no database /")
    assert "there is no database" in terminal("show", "A-1").err
    assert (
        "A worker makes a new one, and so do `perdure migrate`" in terminal("start", "tests.cli.till:sale", "A-1").err
    )
    assert list(tmp_path.iterdir()) == []
    assert terminal("migrate").out == "the database is ready\n"
    assert terminal("ps").out == "no such process\n"
    assert terminal("ps", "--json").json == []


def test_show_tells_whom_a_process_replies_to_and_ps_finds_it_by_that(terminal: Terminal) -> None:
    terminal("start", "tests.cli.till:approval", "A-1", "--key", "A-1")
    receiver = terminal("show", "A-1", "--json").json["id"]
    refused = terminal("start", "tests.cli.till:approval", "A-2", "--reply-to", "ftp://example.org/s3cret")
    assert refused.code != 0
    assert "Give an http:// or https:// URL" in refused.err
    assert "s3cret" not in refused.err
    terminal("start", "tests.cli.till:approval", "A-2", "--key", "A-2", "--reply-to", receiver)
    assert terminal("show", "A-2").has("reply to", receiver)
    found = terminal("ps", "--attribute", f"@reply_to={receiver}")
    assert found.has("A-2")
    assert "A-1" not in found.out
    assert terminal("start", "tests.cli.till:approval", "A-3", "--reply-to", "http://127.0.0.1:9/hook").code == 0
    assert terminal("ps", "--kind", "perdure/webhook").has("127.0.0.1/")
