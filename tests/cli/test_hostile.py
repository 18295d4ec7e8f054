"""Hostile text at the terminal: whatever is stored or typed, nothing of it steers the terminal, and nothing crashes."""

from __future__ import annotations

import asyncio
import os
import re
from typing import Any

import pytest
from msgspec import json

from perdure.clock import Computer
from perdure.kernel.commit import Start
from perdure.kernel.event import Event, EventType
from perdure.kernel.failure import Failure
from perdure.kernel.message import Message, MessageType
from perdure.kernel.names import id_text
from perdure.kernel.process import Process, Status
from perdure.kernel.queue import Queue
from perdure.kernel.transition import Sender
from perdure.store.url import store_for
from tests.cli.terminal import Said, Terminal
from tests.input.hostile import STRINGS

STEERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What steers a terminal, or turns its text around."""
KEEPABLE = [text for text in STRINGS if "\0" not in text and text == text.encode(errors="ignore").decode()]
SHORT = [text for text in KEEPABLE if len(text) < 1000]
FEWEST = 500
WHOLE = os.environ.get("PERDURE_HOSTILE") == "all"
"""Whether to show every process and type every string: `make hostile`."""


def check(said: Said, *, json: bool = False) -> None:
    """It came to an end of its own, told nothing raw, and complained in one line."""
    assert said.code in (0, 1, 2)
    for text in (said.out, said.err):
        assert STEERS.search(text) is None, ascii(text[:500])
    assert said.err.count("\n") <= 1
    assert said.err == "" or said.err.startswith("perdure: ")
    if json and said.out:
        assert said.json is not None


def _row(machine: Computer, text: str) -> Start:
    """A process as another version, or another hand, could have left it: nothing of it was checked at our door."""
    raw, sender = json.encode(text), Sender(text, text, text).encode()
    failure = Failure(text, text, trace=text, undone=(text,), owed=(text,)).encode()
    types = (t for t in EventType if t not in (EventType.RUN_OPENED, EventType.CHILD_STARTED))
    events = [Event(n, 0, type, 1, text, text, sender if n % 3 else raw) for n, type in enumerate(types, 1)]
    process = Process(
        machine.new_id(), text or "kind", text or None, raw, status=Status.HELD, awaiting=f"step {text}", error=failure,
        due_at=1, reminder=True, state=raw, code=text, events=len(events),
        attributes=json.encode({text: text}),
    )  # fmt: skip
    letter = Message(machine.new_id(), process.id, MessageType.SIGNAL, text, raw, text, sender)
    return Start(process, events=tuple(events), messages=(letter,))


def fill(url: str, texts: list[str]) -> list[str]:
    """Put a process and a queue full of each text into the store itself; the ids."""

    async def run() -> list[str]:
        machine = Computer()
        store = store_for(url, machine)
        await store.open()
        starts = [_row(machine, text) for text in texts]
        for first in range(0, len(starts), 50):
            await store.start(starts[first : first + 50])
        queues = [Queue(text, blocked_at=1, blocked_by=text, blocked_why=text, who=text, why=text) for text in texts]
        await store.records(Queue, queues)
        await store.close()
        return [id_text(start.process.id) for start in starts]

    return asyncio.run(run())


@pytest.mark.timeout(300)
def test_nothing_that_is_stored_steers_the_terminal(sqlite_terminal: Terminal) -> None:
    ids = fill(sqlite_terminal.url, SHORT)
    assert len(ids) >= FEWEST
    for words in (["ps", "--limit", "1000"], ["ps", "--limit", "1000", "--wide"], ["queue", "ls"]):
        check(sqlite_terminal(*words))
        said = sqlite_terminal(*words, "--json")
        check(said, json=True)
        assert len(said.json) >= FEWEST
    for id in ids[:: len(ids) // (100 if WHOLE else 8)]:
        for words in (["show", id], ["history", id], ["tree", id], ["values", id]):
            check(sqlite_terminal(*words))
            check(sqlite_terminal(*words, "--json"))


def test_what_is_stored_is_told_alike_on_both_stores(sqlite_url: str, postgres_url: str) -> None:
    told: list[Any] = []
    for url in (sqlite_url, postgres_url):
        terminal = Terminal(url)
        fill(url, SHORT[::10])
        rows = terminal("ps", "--limit", "1000", "--json").json
        told.append(
            {(row["kind"], row["key"], row["state"], str(row["error"]), str(row["attributes"])) for row in rows}
        )
    assert told[0] == told[1]
    assert {state for _, _, state, _, _ in told[0]} == set(SHORT[::10])


VERBS: tuple[tuple[str, ...], ...] = (
    ("show", "{}"), ("history", "{}", "--json"), ("tree", "{}"), ("values", "known", "{}"), ("ps", "--kind", "{}"),
    ("ps", "--prefix", "{}"), ("ps", "--attribute", "{}"), ("ps", "--attribute", "a={}", "--json"),
    ("ps", "--since", "{}"), ("ps", "--before", "{}"), ("ps", "--limit", "{}"), ("ps", "--status", "{}"),
    ("signal", "known", "{}"), ("signal", "known", "s", "{}"), ("signal", "known", "s", "--key", "{}", "--who", "{}"),
    ("set-result", "known", "--step", "{}", "{}"),
    ("edit", "known", "--input", "{}"), ("fork", "known", "--at", "{}"),
    ("fork", "known", "--key", "{}"), ("restart-from", "known", "--step", "{}"),
    ("cancel", "known", "--deadline", "{}"), ("hold", "{}", "--why", "{}"),
    ("queue", "limit", "q", "--per", "{}"), ("queue", "block", "{}", "--why", "{}"), ("start", "{}"), ("{}",),
    ("start", "tests.cli.till:counter", "--input", "{}"), ("start", "tests.cli.till:counter", "--key", "{}"),
    ("schedule", "put", "{}", "tests.cli.till:sale", "{}", "--cron", "@daily"), ("schedule", "next", "--zone", "{}"),
    ("schedule", "put", "n", "tests.cli.till:counter", "--cron", "{}"), ("schedule", "put", "n", "{}", "--at", "{}"),
    ("schedule", "put", "n", "tests.cli.till:counter", "--cron", "@daily", "--zone", "{}"), ("schedule", "rm", "{}"),
    ("schedule", "next", "--cron", "{}"), ("schedule", "backfill", "n", "{}", "{}"), ("schedule", "show", "{}"),
    ("schedule", "next", "--cron", "@daily", "--zone", "{}"), ("schedule", "trigger", "{}", "--timeout", "{}"),
    ("start", "tests.cli.till:counter", "--deadline", "{}"), ("start", "tests.cli.till:counter", "--signal", "{}"),
)  # fmt: skip
"""Command lines with a place for a hostile text."""


@pytest.mark.timeout(300)
def test_nothing_that_is_typed_crashes_or_is_echoed_raw(sqlite_terminal: Terminal) -> None:
    assert sqlite_terminal("start", "tests.cli.till:counter", "--key", "known").code == 0
    for number, text in enumerate(STRINGS[:: 1 if WHOLE else 5]):
        verb = VERBS[number % len(VERBS)]
        check(sqlite_terminal(*(word.replace("{}", text) for word in verb)))


def test_many_hostile_names_at_once_are_each_answered(terminal: Terminal) -> None:
    fill(terminal.url, ["known"])
    texts = [text for text in STRINGS[:: 1 if WHOLE else 4] if not text.startswith("-")]
    for verb in ("cancel", "retry"):
        said = terminal(verb, *texts, "--json")
        assert said.code == 1
        assert len(said.json) == len(texts)
        assert STEERS.search(said.out + said.err) is None
