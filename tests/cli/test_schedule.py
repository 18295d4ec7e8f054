"""Schedules at the terminal: put, seen, triggered, filled in, paused and removed, on both stores."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from rich.cells import cell_len

from perdure import Engine, Schedule, Search
from perdure.cli.app import run
from perdure.cli.schedule import schedule
from perdure.client.schedules import ScheduleView
from tests.cli import till
from tests.cli.conftest import Working
from tests.cli.terminal import Said, Terminal
from tests.cli.test_hostile import check

NIGHTLY = ("nightly", "tests.cli.till:sale", "daily", "7", "--cron", "0 3 * * *", "--zone", "Europe/Berlin")
UNHEARD = "perdure: no worker is alive that hears schedules; this takes effect once one runs: `perdure worker`\n"
Typing = Callable[..., Said]


@pytest.fixture
def beside_a_worker(terminal: Terminal, working: Working) -> Typing:
    """Types a command line while a worker works."""

    def typed(*words: str) -> Said:
        said = working(lambda engine: asyncio.to_thread(terminal, *words))
        assert isinstance(said, Said)
        return said

    return typed


async def until(engine: Engine, name: str, seen: Callable[[ScheduleView], bool]) -> None:
    """Wait until the schedule looks like that."""
    while not seen(await engine.schedules.handle(name).status()):
        await asyncio.sleep(0.01)


def test_a_schedule_is_seen_before_a_worker_has_taken_it(terminal: Terminal) -> None:
    said = terminal("schedule", "put", *NIGHTLY, "--utc")
    assert (said.code, said.err) == (0, UNHEARD)
    assert said.has("schedule nightly: starts sale, 0 3 * * * Europe/Berlin; next 2", ":00:00 UTC")
    said = terminal("schedule", "ls", "--utc")
    assert (said.code, said.err) == (0, "")
    assert said.has("schedule when workflow next running started state")
    assert said.has("nightly 0 3 * * * Europe/Berlin sale 2", ":00:00 UTC 0 0")
    said = terminal("schedule", "show", "nightly")
    assert said.has("workflow sale, code version tests.cli.till:sale") and said.has('arguments "daily", 7')
    assert said.has("overlap skip: while the one before runs, it is left out")
    assert said.has("catch-up what is later than 1 d is missed") and said.has("0 started, 0 skipped, 0 missed")


def test_a_schedule_is_triggered_and_filled_in_and_says_what_it_has_started(
    terminal: Terminal, working: Working, beside_a_worker: Typing
) -> None:
    terminal("schedule", "put", *NIGHTLY)
    said = beside_a_worker("schedule", "trigger", "nightly")
    assert (said.code, said.err) == (0, "")
    id = said.out.strip()
    said = beside_a_worker("schedule", "backfill", "nightly", "2026-02-01T00:00Z", "2026-02-04T00:00+01:00")
    assert (said.code, said.out, said.err) == (0, "schedule nightly: 3 processes for that time\n", "")

    async def all_have_ended(engine: Engine) -> None:
        for one in (await engine.schedules.handle("nightly").status()).recent:
            assert await engine.process(one.process).result(10) == "'daily' 7 None None"

    working(all_have_ended)
    said = terminal("schedule", "show", "nightly", "--utc")
    assert said.has("4 started, 0 skipped, 0 missed")
    assert said.has(id, "completed") and said.has("2026-02-03 02:00:00 UTC", "completed")
    told = terminal("schedule", "show", "nightly", "--json").json
    assert [one["status"] for one in told["recent"]] == ["completed"] * 4
    assert (told["recent"][0]["process"], told["recent"][1]["at"]) == (id, "2026-02-01T02:00:00Z")


def test_programs_get_what_was_triggered_and_filled_in_as_json(terminal: Terminal, beside_a_worker: Typing) -> None:
    assert terminal("schedule", "put", *NIGHTLY, "--json").json["times"] == "0 3 * * * Europe/Berlin"
    told = beside_a_worker("schedule", "trigger", "nightly", "--json").json
    assert told["schedule"] == "nightly" and terminal("show", told["id"]).code == 0
    told = beside_a_worker("schedule", "backfill", "nightly", "2026-02-01T00:00Z", "2026-02-02T00:00Z", "--json").json
    assert told == {"schedule": "nightly", "count": 1}
    [listed] = terminal("schedule", "ls", "--json").json
    assert (listed["name"], listed["workflow"], listed["started"], listed["paused"]) == ("nightly", "sale", 2, "")


def test_all_rules_and_arguments_that_are_given_are_kept_and_shown(terminal: Terminal) -> None:
    said = terminal(
        "schedule", "put", "stock", "tests.cli.till:sale", "--input", '{"order": "A", "count": 2}', "--every", "15m",
        "--offset", "30s", "--overlap", "queue", "--limit", "2", "--catch-up", "2h", "--jitter", "10s",
        "--stop-after", "3", "--attribute", "branch=Bern", "--deadline", "1h",
    )  # fmt: skip
    assert said.code == 0
    told = terminal("schedule", "show", "stock", "--json").json
    assert (told["times"], told["overlap"], told["limit"]) == ("every 15 min, 30 s later", "queue", 2)
    assert (told["catch_up"], told["jitter"], told["stop_after"]) == (7200.0, 10.0, 3)
    assert (told["named"] or told["args"], told["attributes"], told["deadline"]) == (
        {"order": "A", "count": 2}, {"branch": "Bern"}, 3600.0,
    )  # fmt: skip
    said = terminal("schedule", "show", "stock")
    assert said.has("overlap queue: while 2 of them run, it waits")
    assert said.has("jitter up to 10 s") and said.has("stop after 3 failed processes in a row")
    assert said.has("deadline 1 h after the start") and said.has('attributes {"branch":"Bern"}')


def test_days_that_are_skipped_are_kept_and_shown(terminal: Terminal) -> None:
    days = ("--skip-day", "2026-12-25", "--skip-day", "2026-12-26")
    assert terminal("schedule", "put", "stock", *SALE[3:], "--cron", "0 3 * * *", *days).code == 0
    told = terminal("schedule", "show", "stock", "--json").json
    assert (told["times"], told["skip_days"]) == ("0 3 * * * UTC, but for 2 days", ["2026-12-25", "2026-12-26"])
    assert terminal("schedule", "show", "stock").has("skipped days 2026-12-25, 2026-12-26")


def test_a_pause_says_who_and_why_and_ends_when_it_is_told_to(terminal: Terminal, working: Working) -> None:
    terminal("schedule", "put", *NIGHTLY)
    said = terminal("schedule", "pause", "nightly", "--who", "ana", "--why", "the printer\x1b[2J is on fire")
    assert (said.code, said.out, said.err) == (0, "schedule nightly: asked to pause\n", UNHEARD)
    working(lambda engine: until(engine, "nightly", lambda seen: bool(seen.paused)))
    said = terminal("schedule", "ls")
    check(said)
    assert said.has("nightly 0 3 * * * Europe/Berlin sale none 0 0 paused: the printer", "is on fire")
    own = terminal("schedule", "ls", "--json").json[0]["process"]
    assert terminal("history", own).has("pause", "ana", "the printer")
    terminal("schedule", "resume", "nightly", "--json")
    working(lambda engine: until(engine, "nightly", lambda seen: not seen.paused))
    assert not terminal("schedule", "ls").has("paused")
    terminal("schedule", "pause", "nightly", "--who", "bob")
    working(lambda engine: until(engine, "nightly", lambda seen: bool(seen.paused)))
    assert terminal("schedule", "show", "nightly").has("state paused by bob")


def test_a_schedule_that_is_removed_is_gone_and_what_it_has_started_goes_on(
    terminal: Terminal, working: Working, beside_a_worker: Typing
) -> None:
    terminal("schedule", "put", "asking", "tests.cli.till:approval", "A-1", "--every", "7d")
    id = beside_a_worker("schedule", "trigger", "asking").out.strip()
    said = terminal("schedule", "rm", "asking", "--json")
    assert said.json == {"schedule": "asking", "answer": "asked to end; what runs goes on"}

    async def gone(engine: Engine) -> None:
        while await engine.schedules.list():
            await asyncio.sleep(0.01)

    working(gone)
    assert terminal("schedule", "ls").out == "there is no schedule\n"
    assert terminal("show", id, "--json").json["status"] == "running"
    said = terminal("schedule", "show", "asking")
    assert said.code == 1 and "there is no schedule 'asking'; `perdure schedule ls` lists" in said.err


def test_one_whose_process_cannot_go_on_says_so(terminal: Terminal) -> None:
    terminal("schedule", "put", *NIGHTLY)
    [listed] = terminal("schedule", "ls", "--json").json
    assert terminal("hold", listed["process"]).code == 0
    assert terminal("schedule", "ls").has(f"its process is held: perdure show {listed['process']}")
    assert terminal("schedule", "show", "nightly").has("state its process is held")


def test_a_time_that_has_just_passed_is_caught_up(terminal: Terminal, working: Working) -> None:
    just_now = datetime.now(UTC) - timedelta(minutes=5)
    said = terminal("schedule", "put", "once", "tests.cli.till:sale", "A-1", "--at", just_now.isoformat())
    assert said.code == 0 and "next" not in said.out

    async def sold(engine: Engine) -> None:
        await until(engine, "once", lambda seen: seen.started == 1)
        [sale] = await engine.list(Search(kind="sale"))
        assert await engine.process(sale.id).result(10) == "'A-1' 1 None None"

    working(sold)
    assert terminal("schedule", "ls").has("once at 2", "sale none 1 1")


def test_without_a_worker_a_trigger_says_so_and_waits_no_longer_than_it_is_told(
    terminal: Terminal, working: Working
) -> None:
    terminal("schedule", "put", *NIGHTLY)
    said = terminal("schedule", "trigger", "nightly", "--timeout", "10ms")
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith(UNHEARD)
    assert "no worker has answered for schedule nightly within 10ms" in said.err and "do not ask again" in said.err
    said = terminal("schedule", "backfill", "nightly", "2026-02-01T00:00Z", "2026-02-02T00:00Z", "--timeout", "10ms")
    assert said.code == 1 and said.err.startswith(UNHEARD)
    working(lambda engine: until(engine, "nightly", lambda seen: seen.started == 2))


@pytest.mark.parametrize(
    "words", [("show",), ("pause",), ("resume",), ("rm",), ("trigger",), ("backfill", "2026-02-01Z", "2026-02-02Z")]
)
def test_a_schedule_that_is_not_there_cannot_be_changed(terminal: Terminal, words: tuple[str, ...]) -> None:
    verb, *times = words
    said = terminal("schedule", verb, "nothing", *(time.replace("Z", "T00:00Z") for time in times))
    assert (said.code, said.out) == (1, "")
    assert said.err == "perdure: there is no schedule 'nothing'; `perdure schedule ls` lists what there is\n"


SALE = ("schedule", "put", "n", "tests.cli.till:sale", "A")


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (SALE, "Give exactly one of them"),
        ((*SALE, "--cron", "@daily", "--every", "2h"), "Give exactly one of them"),
        ((*SALE, "--cron", "0 3 * *"), "is not a cron expression"),
        ((*SALE, "--cron", "@daily", "--zone", "Mars"), "is not a known time zone"),
        ((*SALE, "--every", "soon"), "write 90s, 15m, 2h or 7d"),
        ((*SALE, "--every", "2h", "--zone", "Europe/Berlin"), "--zone is for --cron"),
        ((*SALE, "--cron", "@daily", "--offset", "2h"), "--offset is for --every"),
        ((*SALE, "--every", "2h", "--skip-day", "2026-12-25"), "--skip-day is for --cron"),
        ((*SALE, "--cron", "@daily", "--skip-day", "Christmas"), "is not a date; write 2026-12-25"),
        ((*SALE, "--at", "2026-11-25T03:00"), "is not a time with a zone; write 2026-11-25T03:00Z"),
        ((*SALE, "--at", "tomorrow"), "is not a time with a zone"),
        ((*SALE, "--at", "9999-12-31T23:59-12:00"), "is too far away; write a time from 1970 to 8999"),
        ((*SALE, "--cron", "@daily", "--overlap", "allow", "--limit", "2"), "has no limit"),
        ((*SALE, "--cron", "@daily", "--limit", "0"), "Give a whole number from 1"),
        ((*SALE, "--cron", "@daily", "--overlap", "both"), "--help"),
        ((*SALE, "two", "--cron", "@daily"), "count"),
        ((*SALE, "--input", "[]", "--cron", "@daily"), "the arguments are given twice"),
        (("schedule", "backfill", "n", "2026-02-01", "2026-02-02"), "is not a time with a zone"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_to_do_and_stores_nothing(
    sqlite_terminal: Terminal, words: tuple[str, ...], advice: str
) -> None:
    said = sqlite_terminal(*words)
    assert (said.code, said.out) == (2, "")
    assert advice in said.err and said.err.count("\n") == 1
    assert sqlite_terminal("schedule", "ls").out == "there is no schedule\n"


def test_the_next_times_of_an_expression_need_no_database(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["schedule", "next", "--cron", "30 2 * * *", "--zone", "Europe/Berlin", "--count", "3"]
    words += ["--after", "2026-03-28T00:00Z"]
    assert run([*words, "--utc"]) == 0
    heading, *lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert heading == ["in", "Europe/Berlin", "in", "UTC"]
    assert [line[:7] for line in lines] == [
        ["Sat", "2026-03-28", "02:30:00", "CET", "2026-03-28", "01:30:00", "UTC"],
        ["Sun", "2026-03-29", "03:00:00", "CEST", "2026-03-29", "01:00:00", "UTC"],
        ["Mon", "2026-03-30", "02:30:00", "CEST", "2026-03-30", "00:30:00", "UTC"],
    ]
    assert run([*words, "--json"]) == 0
    assert '"2026-03-28T01:30:00Z"' in capsys.readouterr().out
    assert run(["schedule", "next", "--cron", "@hourly"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 6


@pytest.mark.parametrize("wrong", [("x",), ("0 0 30 2 *",), ("@daily", "--count", "0"), ("@daily", "--zone", "../x")])
def test_times_that_never_come_and_wrong_counts_and_zones_are_refused(
    wrong: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["schedule", "next", "--cron", *wrong]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1


@pytest.mark.parametrize("verb", [verb for verb in schedule if not verb.startswith("-")])
def test_the_help_of_each_of_its_commands_fits_80_columns(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["schedule", verb, "--help"]) == 0
    assert max(map(cell_len, capsys.readouterr().out.splitlines())) <= 80


def test_a_schedule_that_code_has_put_is_seen_with_all_that_it_does(terminal: Terminal, working: Working) -> None:
    async def put(engine: Engine) -> None:
        order = till.approval.options(deadline=60)
        await engine.schedules.put("many", Schedule(every=1, overlap="queue", limit=2, catch_up=10), order, "A")
        await until(engine, "many", lambda seen: seen.waiting > 0)

    working(put)
    [listed] = terminal("schedule", "ls", "--json").json
    assert listed["running"] == 2
    assert terminal("schedule", "ls").has("many every 1 s approval", f"2 + {listed['waiting']} queued 2")
    assert terminal("schedule", "show", "many").has(f"queued {listed['waiting']}")
