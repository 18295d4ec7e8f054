"""A redaction: nothing of a user's values is left, wherever the engine keeps them; names, keys, who and why are."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw, json, to_builtins

from perdure.kernel import archive, context
from perdure.kernel.archive import ArchivedRecord
from perdure.kernel.checkpoint import Checkpoint, Repair, TimerChange, parted, written
from perdure.kernel.child import ChildBegun
from perdure.kernel.event import Event, EventType
from perdure.kernel.failure import Failure
from perdure.kernel.message import Message, MessageType, Origin
from perdure.kernel.process import Process, Status
from perdure.kernel.redaction import PARTS, redacted
from perdure.kernel.retry import FailedAttempt
from perdure.kernel.run import Opening
from perdure.kernel.stored import MARK
from perdure.kernel.transition import Sender

ID = bytes(range(16))
VALUE: dict[str, Any] = {"": ["secret"], "cents": 4711, "deep": [{"@machine": "secret", "@context": "secret"}]}
RAW = json.encode(VALUE)
CONTEXT = '{"tenant":"secret"}'
FAILURE = Failure("CardRefused", "secret card", trace="secret line", step="charge", cause="Refused")
WHO = Sender("Ann", "they moved", "cli")
DIGEST = "5ec4e7"


def told(**more: Any) -> bytes:
    return json.encode(to_builtins(WHO) | more)


PAYLOADS: dict[EventType, bytes | None] = {
    EventType.RUN_OPENED: Opening(1, 0, sender=to_builtins(WHO), input=Raw(RAW)).encode(),
    EventType.STEP_COMPLETED: RAW,
    EventType.STEP_FAILED: FAILURE.encode(),
    EventType.TIMER_FIRED: None,
    EventType.MESSAGE_RECEIVED: None,
    EventType.ATTEMPT_FAILED: FailedAttempt(1, 2, 3, FAILURE).encode(),
    EventType.REVIVED: json.encode({"worker": "w1", "hung": {"where": "f", "seconds": 3.0, "stack": "secret()"}}),
    EventType.HELD: FAILURE.encode(),
    EventType.RESUMED: told(),
    EventType.CHILD_STARTED: ChildBegun("0" * 32, False, False).encode(),
    EventType.ANSWER_IGNORED: None,
    EventType.SIGNAL_SENT: b'{"to":"0192f0c1"}',
    EventType.UNDO_OWED: None,
    EventType.PATCHED: b'{"turn":1}',
    EventType.GIVEN_UP: told(not_undone=["charge:1"]),
    EventType.REPAIRED: told(arguments=VALUE, key="R-1"),
    EventType.RESULT_KEPT: RAW,
    EventType.SET_BY_HAND: told(),
    EventType.SKIPPED: told(),
    EventType.DEADLINE_SET: told(to=5, was=None),
    EventType.PUBLISHED: RAW,
    EventType.ATTRIBUTES_SET: RAW,
    EventType.CALL_ANSWERED: RAW,
    EventType.CALL_REFUSED: FAILURE.encode(),
    EventType.COMPLETED: None,
    EventType.FAILED: FAILURE.encode(),
    EventType.CANCELLED: FAILURE.encode(),
    EventType.BROKEN: FAILURE.encode(),
    EventType.TERMINATED: told(asked=True),
    EventType.EXPIRED: FAILURE.encode(),
    EventType.KEY_RELEASED: told(key="A-1"),
    EventType.TIMER_CHANGED: TimerChange("bill", 1, to=2).encode(),
    EventType.ATTEMPT_BEGUN: None,
    EventType.RUN_RETRIED: FailedAttempt(1, 2, 3, FAILURE).encode(),
    EventType.FIELDS_EDITED: told(fields=VALUE, was={"cents": "secret"}),
    EventType.VERSION_MOVED: told(to="2", was="1"),
    EventType.PRIORITY_SET: told(to=1, was=4),
    EventType.LOOK_CUT_SHORT: None,
    EventType.ATTRIBUTES_EDITED: told(attributes=VALUE, was={"card": "secret"}),
    EventType.ARGUMENTS_KEPT: RAW,
}
"""A payload of each type of event, with a secret wherever a value or a text of the user's code can stand."""

MESSAGES: dict[MessageType, bytes] = {
    MessageType.SIGNAL: RAW,
    MessageType.CANCEL: told(until=99),
    MessageType.RESULT: RAW,
    MessageType.FAILURE: FAILURE.encode(),
    MessageType.CANCELLED: FAILURE.encode(),
    MessageType.TERMINATE: told(),
    MessageType.CALL: RAW,
}


def everything() -> ArchivedRecord:
    """A machine in which all of these have happened, with a repair that is still to come."""
    checkpoint = Checkpoint(2, method=3, repair=Repair("correct", Raw(RAW), 7), context=CONTEXT)
    row = Process(
        ID, "sale", "A-1", RAW, Status.BROKEN, 2, inbox=8, events=len(PAYLOADS), state=written(checkpoint, RAW),
        attributes=json.encode(VALUE | {"@context": CONTEXT}), progress=json.encode({"charge:1": VALUE}), result=RAW,
        error=FAILURE.encode(),
    )  # fmt: skip
    events = [
        Event(number, 0, type, 8, "1", "charge", payload, bytes.fromhex(DIGEST))
        for number, (type, payload) in enumerate(PAYLOADS.items(), 1)
    ]
    letter = json.encode(to_builtins(WHO) | {"context": CONTEXT})
    messages = [
        Message(bytes(16), ID, type, "go", payload, "M-1", letter, number)
        for number, (type, payload) in enumerate(MESSAGES.items(), 1)
    ]
    step = json.encode(Origin("step", "1", DIGEST))
    messages.append(Message(bytes(16), ID, MessageType.RESULT, "charge", RAW, sender=step, number=8))
    record = archive.record_of(row, events, messages)
    return ArchivedRecord(record.process, record.events, record.messages, former={"1": record.events})


def test_a_full_redaction_leaves_no_value_anywhere() -> None:
    assert (set(PAYLOADS), set(MESSAGES)) == (set(EventType), set(MessageType)), "each kind is looked at"
    record = everything()
    line = archive.written(redacted(record, PARTS))
    assert b"secret" in archive.written(record)
    for one in (b"secret", b"4711", DIGEST.encode()):
        assert one not in line
    found = archive.read(line)
    payloads = {event.type: event.payload or b"" for event in found.events}
    commands = [type for type, payload in PAYLOADS.items() if b'"Ann"' in (payload or b"")]
    assert all(b'"Ann"' in payloads[type] and b'"they moved"' in payloads[type] for type in commands)
    assert b'"key":"R-1"' in payloads[EventType.REPAIRED]
    assert [one.payload for one in found.messages if one.type in (MessageType.CANCEL, MessageType.TERMINATE)] == [
        MESSAGES[MessageType.CANCEL], MESSAGES[MessageType.TERMINATE]
    ]  # fmt: skip
    assert Failure.decode(found.messages[3].payload).type == "CardRefused"
    checkpoint, fields = parted(found.process.state or b"")
    assert (checkpoint.method, checkpoint.repair and checkpoint.repair.method) == (3, "correct")
    assert json.decode(fields)["cents"] == 0
    assert context.read(checkpoint.context) == {"tenant": "redacted"}
    assert context.read(context.of_attributes(found.process.attributes)) == {"tenant": "redacted"}
    assert context.read(context.of_sender(found.messages[0].sender)) == {"tenant": "redacted"}


@pytest.mark.parametrize("part", PARTS)
def test_the_arguments_of_a_repair_are_redacted_whatever_part_is(part: str) -> None:
    record = redacted(everything(), (part,))
    repaired = next(one for one in record.events if one.type == EventType.REPAIRED)
    assert b"secret" not in bytes(repaired.payload)
    repair = json.decode(record.process.state)["@machine"]["repair"]
    assert repair["call"] == {"": ["redacted"], "cents": 0, "deep": [{"@machine": "redacted", "@context": "redacted"}]}


def test_the_results_and_failures_that_come_as_messages_are_values_and_errors_of_events() -> None:
    by_events = redacted(everything(), ("events",)).messages
    assert [b"secret" in bytes(one.payload) for one in by_events] == [
        True, False, False, False, False, False, True, False
    ]  # fmt: skip
    by_error = redacted(everything(), ("error",)).messages
    failures = [one for one in by_error if one.type in (MessageType.FAILURE, MessageType.CANCELLED)]
    assert all(b"secret" not in bytes(one.payload) for one in failures)


def test_a_value_that_looks_like_base64_is_redacted_and_what_is_sealed_stays_sealed() -> None:
    for raw, after in (
        (b'{"$base64":"secret"}', b'{"$base64":"redacted"}'),
        (b'["secret",\n1]', b'["redacted",0]'),
        (b"secret, damaged", b'"redacted"'),
        (MARK + b"sealed", MARK + b"sealed"),
    ):
        record = archive.record_of(Process(ID, "sale", None, raw, Status.COMPLETED), [], [])
        assert archive.read(archive.written(redacted(record, ("input",)))).process.input == after


@pytest.mark.parametrize("part", ["attributes.customer.email", "input.0.customer.email", "state.customer.email"])
def test_a_field_is_redacted_though_its_name_or_that_of_an_outer_one_holds_dots(part: str) -> None:
    for value in ({"customer.email": "secret"}, {"customer": {"email": "secret"}, "customer.email": "secret"}):
        raw = json.encode(value | {"customer.name": "Ann"})
        row = Process(ID, "sale", None, b"[%s]" % raw, Status.BROKEN, state=raw, attributes=raw)
        line = archive.written(redacted(archive.record_of(row, [], []), (part,)))
        after = archive.read(line).process
        [input] = json.decode(after.input)
        found = {"attributes": after.attributes or b"", "input": json.encode(input), "state": after.state or b""}
        assert b"secret" not in found[part.partition(".")[0]] and line.count(b"Ann") == 3
        assert line.count(b"secret") == 2 * len(value)


def test_an_event_of_a_type_that_is_not_known_is_redacted_as_a_whole() -> None:
    record = archive.record_of(Process(ID, "sale", None, b"null", events=1), [], [])
    strange = archive.StoredEvent(1, 999, 8, payload=Raw(RAW))
    record = ArchivedRecord(record.process, [strange])
    assert b"secret" not in archive.written(redacted(record, ("result",)))


def test_a_function_gets_the_fields_of_a_machine_and_not_where_it_stands() -> None:
    asked: list[tuple[str, Any]] = []

    def redact(part: str, value: Any) -> Any:
        asked.append((part, value))
        return {"cents": 1}

    record = redacted(everything(), ("state",), redact)
    assert asked == [("state", VALUE)]
    state = json.decode(record.process.state)
    assert (list(state), state["cents"], state["@machine"]["method"]) == (["@machine", "cents"], 1, 3)
