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


CARD: dict[str, Any] = {"id": "A-17", "card": "secret"}


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [
        ("order.card", ["A-17", CARD], ["redacted", CARD | {"card": "redacted"}]),
        ("order.card", ["A-17", {"order": CARD}], ["redacted", {"order": CARD | {"card": "redacted"}}]),
        ("card", [CARD, {"name": "secret"}], [CARD | dict.fromkeys(CARD, "redacted"), {"name": "redacted"}]),
        ("order", [{"order": "A-17", "card": "secret"}], [{"order": "redacted", "card": "redacted"}]),
        ("order.crad", ["A-17", CARD], ["redacted", dict.fromkeys(CARD, "redacted")]),
        ("1.card", ["A-17", CARD], ["A-17", CARD | {"card": "redacted"}]),
        ("7.card", ["A-17", CARD], ["redacted", dict.fromkeys(CARD, "redacted")]),
        ("0.0.card", [[CARD, 5], "A-17"], [[CARD | {"card": "redacted"}, 5], "A-17"]),
        ("orders.card", [[CARD, {"id": "B-3"}]], [[CARD | {"card": "redacted"}, {"id": "B-3"}]]),
        ("gift.card", {"": ["A-17"], "gift": CARD}, {"": ["A-17"], "gift": CARD | {"card": "redacted"}}),
        ("gift", {"": ["A-17"], "gift": CARD}, {"": ["A-17"], "gift": dict.fromkeys(CARD, "redacted")}),
        ("0.card", {"": [CARD], "gift": CARD["id"]}, {"": [CARD | {"card": "redacted"}], "gift": "A-17"}),
        ("order.card", {"": [CARD], "gift": 5}, {"": [CARD | {"card": "redacted"}], "gift": 5}),
        ("card", {"": [CARD], "gift": {"card": 7}}, {"": [dict.fromkeys(CARD, "redacted")], "gift": {"card": 0}}),
        ("gfit.card", {"": [], "gift": {"crd": "secret"}}, {"": [], "gift": {"crd": "redacted"}}),
    ],
)  # fmt: skip
def test_what_a_path_may_name_in_an_input_is_redacted_and_all_of_it_if_that_is_not_known(
    path: str, before: Any, after: Any
) -> None:
    row = Process(ID, "sale", None, json.encode(before), Status.COMPLETED)
    line = archive.written(redacted(archive.record_of(row, [], []), (f"input.{path}",)))
    assert b"secret" not in line
    assert json.decode(archive.read(line).process.input) == after


def test_an_input_that_was_edited_and_that_of_a_queued_step_are_redacted_alike() -> None:
    opening = Opening(1, 0, input=Raw(json.encode(["A-17", CARD]))).encode()
    event = Event(1, 0, EventType.RUN_OPENED, 8, payload=opening)
    task = json.encode({"step": "charge", "key": "k", "call": ["A-17", CARD]})
    for path, kept in (("order.card", CARD | {"card": "redacted"}), ("crad", dict.fromkeys(CARD, "redacted"))):
        row = Process(ID, "@till", None, task, Status.COMPLETED, run=2, events=1)
        line = archive.written(redacted(archive.record_of(row, [event], []), (f"input.{path}",)))
        assert b"secret" not in line
        assert json.decode(archive.read(line).process.input) == {
            "step": "charge", "key": "k", "call": ["redacted", kept]
        }  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"cards": [CARD, {"id": "B-3"}]}, {"cards": [CARD | {"card": "redacted"}, {"id": "B-3"}]}),
        ({"cards": [[CARD], [CARD]]}, {"cards": [[CARD | {"card": "redacted"}]] * 2}),
        ({"cards": ["secret", 5], "id": "A-17"}, {"cards": ["redacted", 0], "id": "A-17"}),
        ({"cards": [["secret"], {"at": "secret"}]}, {"cards": [["redacted"], {"at": "redacted"}]}),
        ({"cards": "secret", "id": "A-17"}, {"cards": "redacted", "id": "A-17"}),
        ({"cards": {"id": "A-17"}}, {"cards": {"id": "A-17"}}),
        ({"id": "A-17"}, {"id": "A-17"}),
    ],
)  # fmt: skip
def test_a_path_goes_through_lists_and_what_has_no_names_for_it_is_redacted_whole(before: Any, after: Any) -> None:
    raw = json.encode(before)
    row = Process(ID, "sale", None, b"[]", Status.COMPLETED, state=raw, attributes=raw, result=raw)
    for part in ("attributes", "result", "state"):
        found = redacted(archive.record_of(row, [], []), (f"{part}.cards.card",)).process
        assert json.decode(getattr(found, part)) == after
        assert [json.decode(getattr(found, name)) for name in ("attributes", "result", "state") if name != part] == [
            before
        ] * 2
    line = archive.written(redacted(archive.record_of(row, [], []), ("result.cards.card",)))
    assert archive.read(line).redacted == ("result.cards.card",)


def test_a_result_that_is_a_list_or_a_text_has_no_names_for_a_path() -> None:
    for before, after in (([CARD], [CARD | {"card": "redacted"}]), (["secret"], ["redacted"]), ("secret", "redacted")):
        row = Process(ID, "sale", None, b"[]", Status.COMPLETED, result=json.encode(before))
        found = redacted(archive.record_of(row, [], []), ("result.card",)).process
        assert json.decode(found.result) == after


def test_what_a_step_reports_is_redacted_without_the_name_of_its_place() -> None:
    progress = json.encode({"charge:1": CARD, "ship:2": {"id": "B-3"}})
    row = Process(ID, "sale", None, b"[]", progress=progress)
    for path in ("progress.card", "progress.charge:1.card"):
        found = redacted(archive.record_of(row, [], []), (path,)).process
        assert json.decode(found.progress) == {"charge:1": CARD | {"card": "redacted"}, "ship:2": {"id": "B-3"}}


def test_a_field_of_a_context_is_redacted_wherever_the_context_stands() -> None:
    line = archive.written(redacted(everything(), ("attributes.@context.tenant",)))
    found = archive.read(line)
    assert context.read(context.of_attributes(found.process.attributes)) == {"tenant": "redacted"}
    assert context.read(context.of_sender(found.messages[0].sender)) == {"tenant": "redacted"}
    checkpoint, _ = parted(found.process.state or b"")
    assert context.read(checkpoint.context) == {"tenant": "redacted"}


def test_a_function_gets_what_a_path_finds_and_the_rest_is_replaced_without_it() -> None:
    asked: list[tuple[str, Any]] = []

    def redact(part: str, value: Any) -> Any:
        asked.append((part, value))
        return value

    row = Process(ID, "sale", None, json.encode(["A-17", CARD]), result=json.encode([CARD, CARD]))
    parts = ("input.order.card", "result.card")
    found = redacted(archive.record_of(row, [], []), parts, redact).process
    assert asked == [("input.1.card", "secret"), ("result.0.card", "secret"), ("result.1.card", "secret")]
    assert json.decode(found.input) == ["redacted", CARD] and json.decode(found.result) == [CARD, CARD]
    found = redacted(archive.record_of(row, [], []), ("input.card",), redact).process
    assert len(asked) == 3 and json.decode(found.input) == ["redacted", dict.fromkeys(CARD, "redacted")]


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
