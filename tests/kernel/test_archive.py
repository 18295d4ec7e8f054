"""The form of an archived process: what is written is read again to the byte, and messages may get new numbers."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import json
from msgspec.structs import replace

from perdure.errors import DamagedRecord, IllegalMove, InvalidInput
from perdure.kernel import archive
from perdure.kernel.admission import open_children, start_of
from perdure.kernel.archive import Archived
from perdure.kernel.checkpoint import Checkpoint, parted, written
from perdure.kernel.event import Event, EventType
from perdure.kernel.failure import Failure
from perdure.kernel.message import Message, MessageType
from perdure.kernel.process import Process, Status
from perdure.kernel.redaction import redacted
from perdure.kernel.run import Opening, opening_of
from perdure.kernel.stored import MARK, Undecodable

ID, NOW = bytes(range(16)), 1_000_000


def process(**fields: Any) -> Process:
    return Process(ID, "sale", "A-1", **{"input": b'["A-1"]', "created_at": 5, "opened_at": 7, **fields})


def letter(number: int, **fields: Any) -> Message:
    return Message(number.to_bytes(16, "big"), ID, MessageType.SIGNAL, "go", b"1", number=number, **fields)


def received(number: int, message: int) -> Event:
    return Event(number, number, EventType.MESSAGE_RECEIVED, 9, name="go", message=message)


def read_again(row: Process, events: list[Event], messages: list[Message]) -> Archived:
    return archive.read(archive.written(archive.record_of(row, events, messages)), 3)


@pytest.mark.parametrize(
    "raw",
    [
        b"null", b'{"a": 1,  "b":"\xc3\xa4"}', b'[1,\n2]', b"not json", b"\xff\xfe", b'{"$base64":"AA=="}',
        b'"$base64"', MARK + b"sealed", b" 1 ",
    ],
)  # fmt: skip
def test_a_payload_is_read_as_it_was_written_to_the_byte(raw: bytes) -> None:
    row = process(events=1, input=raw, state=raw)
    event = Event(1, 1, EventType.STEP_COMPLETED, 8, "0:1", "charge", raw, b"\x01\x02")
    line = archive.written(archive.record_of(row, [event], []))
    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    found = archive.read(line, 3)
    assert (found.process.input, found.process.state, found.events, found.line) == (raw, raw, (event,), 3)
    assert isinstance(found.process.input, Undecodable) == raw.startswith(MARK)


def test_no_payload_and_an_empty_one_are_two_things() -> None:
    row = process(events=2, result=None)
    events = [Event(n, n, EventType.STEP_COMPLETED, 8, payload=raw) for n, raw in ((1, None), (2, b"null"))]
    found = read_again(row, events, [])
    assert [event.payload for event in found.events] == [None, b"null"]
    assert (found.process.result, found.process.error) == (None, None)


def test_messages_are_as_they_were_when_the_row_was_read() -> None:
    row = process(events=1, inbox=4, seen=3, run=2)
    messages = [
        letter(1, consumed_run=1, consumed_by=4),  # of a former run
        letter(2, consumed_run=2, consumed_by=1),
        letter(3, consumed_run=2, consumed_by=2),  # received since
        letter(4, consumed_run=3, consumed_by=1),  # by a later run
        letter(5),  # came since
    ]
    found = read_again(row, [received(1, 2)], messages)
    assert [(one.number, one.consumed_run, one.consumed_by) for one in found.messages] == [
        (2, 2, 1),
        (3, None, None),
        (4, None, None),
    ]


def test_messages_get_new_numbers_where_old_ones_are_gone_and_all_that_names_them_follows() -> None:
    opening = Opening(1, 0, void=5, seen=6)
    state = written(Checkpoint(2, letter=8), b"{}")
    row = process(events=4, inbox=9, seen=8, run=2, state=state)
    events = [
        Event(1, 0, EventType.RUN_OPENED, 8, payload=opening.encode()),
        received(2, 4),
        received(3, 8),
        Event(4, 0, EventType.CALL_ANSWERED, 9, name="quote:8", payload=b"1"),
    ]
    start = start_of(read_again(row, events, [letter(4), letter(6), letter(8), letter(9)]), now=NOW, idle_at=2 * NOW)
    assert [(one.id[-1], one.number, one.consumed_by) for one in start.messages] == [
        (4, 0, None),
        (8, 0, None),
        (6, 0, None),  # heard and not received: it is heard again
        (9, 0, None),
    ]
    assert (start.process.inbox, start.process.seen) == (0, 2)
    assert [event.message for event in start.events] == [None, 1, 2, None]
    there = opening_of(start.events)
    assert (there.void, there.seen, start.events[3].name) == (1, 1, "quote:2")
    assert parted(start.process.state or b"")[0].letter == 2


@pytest.mark.parametrize(("void", "after"), [(2, 1), (3, 1), (4, 3), (5, 4)])
def test_orders_that_were_meant_for_an_earlier_run_are_the_same_after_letters_were_moved(void: int, after: int) -> None:
    row = process(events=2, inbox=5, seen=3, run=2)
    events = [Event(1, 0, EventType.RUN_OPENED, 8, payload=Opening(1, 0, void=void).encode()), received(2, 2)]
    messages = [letter(2), letter(3), letter(4), letter(5)]
    start = start_of(read_again(row, events, messages), now=NOW, idle_at=2 * NOW)
    assert [one.id[-1] for one in start.messages] == [2, 3, 4, 5] and start.process.seen == 1
    assert opening_of(start.events).void == after


@pytest.mark.parametrize(
    ("fields", "due_at", "reminder"),
    [
        ({}, NOW, False),
        ({"due_at": 9 * NOW}, NOW, False),
        ({"due_at": 9 * NOW, "opened_at": None}, 9 * NOW, False),
        ({"due_at": 9, "opened_at": None}, NOW, False),
        ({"status": Status.HELD}, 2 * NOW, True),
        ({"status": Status.BROKEN}, 2 * NOW, True),
        ({"status": Status.COMPLETED}, None, False),
    ],
)
def test_what_is_taken_over_is_due_at_once_unless_it_waits_to_begin_or_for_a_person(
    fields: dict[str, Any], due_at: int | None, reminder: bool
) -> None:
    row = start_of(read_again(process(**fields), [], []), now=NOW, idle_at=2 * NOW).process
    assert (row.due_at, row.reminder) == (due_at, reminder)


def test_a_history_with_a_gap_is_not_taken() -> None:
    with pytest.raises(DamagedRecord, match="is not whole"):
        start_of(read_again(process(events=1), [received(1, 1)], []), now=NOW, idle_at=NOW)


@pytest.mark.parametrize("part", ["events", "input", "attributes.card"])
def test_arguments_that_are_kept_are_redacted_whatever_part_is(part: str) -> None:
    event = Event(1, 0, EventType.ARGUMENTS_KEPT, 8, "1", "charge", b'{"":["4711"],"gift":true}', b"\x01")
    (found,) = redacted(archive.record_of(process(events=1), [event], []), (part,)).events
    assert (bytes(found.payload), found.digest) == (b'{"":["redacted"],"gift":true}', None)


def test_redacted_values_are_taken_of_ended_processes_alone() -> None:
    record = redacted(archive.record_of(process(), [], []), ("input",))
    line = archive.written(record)
    assert b'"input":["redacted"]' in line
    with pytest.raises(IllegalMove, match=r"redacted values \(input\)"):
        start_of(archive.read(line), now=NOW, idle_at=NOW)
    ended = archive.record_of(process(status=Status.COMPLETED), [], [])
    assert start_of(archive.read(archive.written(redacted(ended, ("input",)))), now=NOW, idle_at=NOW).process.final


def test_a_redaction_leaves_nothing_of_a_part_in_the_events_either() -> None:
    failure = Failure("CardRefused", "secret card", trace="secret line").encode()
    opening = replace(Opening(1, 0), input=json.decode(b'["secret"]', type=type(Opening(0, 0).input)))
    state = written(Checkpoint(1, method=3), b'{"owner":"secret","cents":12}')
    events = [
        Event(1, 0, EventType.RUN_OPENED, 8, payload=opening.encode()),
        Event(2, 1, EventType.STEP_COMPLETED, 8, "0:1", "charge", b'{"card":"secret","fee":1.5}', b"\x01"),
        Event(3, 1, EventType.STEP_FAILED, 8, "0:2", "ship", failure),
        Event(4, 0, EventType.ATTRIBUTES_SET, 8, payload=b'{"card":"secret"}'),
        Event(5, 0, EventType.FAILED, 8, payload=failure),
    ]
    row = process(
        run=2, events=5, state=state, error=failure, status=Status.FAILED, attributes=b'{"card":"secret","shop":7}'
    )
    whole = archive.record_of(row, events, [])
    line = archive.written(redacted(whole, ("input", "events", "attributes", "state", "error")))
    assert b"secret" not in line
    found = archive.read(line)
    assert found.events[1].payload == b'{"card":"redacted","fee":0.0}' and found.events[1].digest is None
    assert parted(found.process.state or b"") == (Checkpoint(1, method=3), b'{"owner":"redacted","cents":0}')
    assert Failure.decode(found.process.error or b"").type == "CardRefused"
    assert json.decode(found.process.attributes or b"") == {"card": "redacted", "shop": 0}


def test_a_line_of_something_else_is_refused_with_its_number() -> None:
    row = archive.record_of(process(), [], [])
    strange = archive.written(replace(row, process=replace(row.process, status="paused")))
    for line in (b"", b"{}", b'{"perdure":1}', b"\xff", strange):
        with pytest.raises(InvalidInput, match=r"^line 3 "):
            archive.read(line, 3)


def test_the_children_for_which_a_process_waits_are_those_without_an_answer() -> None:
    events = [
        Event(1, 0, EventType.CHILD_STARTED, 8, "0:1", "parcel", b'{"id":"%s"}' % (b"0" * 32)),
        Event(2, 0, EventType.CHILD_STARTED, 8, "0:2", "parcel", b'{"id":"%s"}' % (b"1" * 32)),
        Event(3, 1, EventType.STEP_COMPLETED, 8, "0:1", "parcel", message=1),
    ]
    assert open_children(events) == ([bytes.fromhex("1" * 32)], True)
