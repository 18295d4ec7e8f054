"""Records inside payloads that another hand has changed, and names of steps that look like name and place."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from perdure.client.view import view
from perdure.errors import IllegalMove, InvalidKey, PayloadError
from perdure.kernel.diagnosis import next_mover
from perdure.kernel.event import EventType
from perdure.kernel.failure import Failure
from perdure.kernel.manual_result import set_by_hand
from perdure.kernel.process import Process, Status
from perdure.kernel.retry import decode_attempt
from perdure.kernel.stored import under_way
from perdure.kernel.transition import Sender
from perdure.kernel.undo import name_and_place, undo_place

ROW = Process(bytes(16), "k", None, b"[]", token=3, version=1, opened_at=1, owner=bytes(16), due_at=9)
DAMAGED = (b"", b"{", b"[]", b'{"a', b"\xff", b'{"\xff":1}', b'{"a":' * 3000)


@pytest.mark.parametrize("raw", DAMAGED, ids=lambda raw: ascii(raw[:9]))
def test_a_damaged_record_is_refused_with_where_to_look(raw: bytes) -> None:
    for read in (decode_attempt, under_way):
        with pytest.raises(PayloadError, match=r"cannot be read: .*`perdure history` shows its bytes: restore them"):
            read(raw)
    assert Failure.shown(raw).type == "PayloadError"


@pytest.mark.parametrize("raw", DAMAGED, ids=lambda raw: ascii(raw[:9]))
def test_a_process_with_damaged_payloads_is_shown_and_hides_no_other(raw: bytes) -> None:
    for status in Status:
        row = replace(ROW, status=status, input=raw, state=raw, error=raw, progress=raw, result=raw)
        shown = view(row, 5, {})
        assert shown.progress is None and shown.error is not None
    assert "that cannot be read" in next_mover(replace(ROW, progress=raw), 5, {}).text


@pytest.mark.parametrize(
    ("slot", "split"),
    [
        ("charge:1", ("charge", "1")),
        ("a:b:.1.2:3", ("a:b", ".1.2:3")),
        ("a:b", None),
        (":1", None),
        ("a:b:7", ("a:b", "7")),
        ("refund:" + undo_place("charge", "1"), ("refund", "undo/charge:1")),
        ("a:b:" + undo_place("c:d", "1"), ("a:b", "undo/c:d:1")),
    ],
)
def test_a_slot_is_taken_apart_at_its_place_whatever_the_name_holds(slot: str, split: tuple[str, str] | None) -> None:
    assert name_and_place(slot) == split


def test_a_step_under_way_whose_name_holds_a_colon_gets_its_result_by_hand() -> None:
    row = replace(ROW, progress=b'{"bank:charge:1":{}}')
    commit = set_by_hand(row, (), "bank:charge", b"1", Sender("Ann"), now=5)
    given = [(event.name, event.place) for event in commit.events if event.type is EventType.SET_BY_HAND]
    assert given == [("bank:charge", "1")]


@pytest.mark.parametrize("step", [":1", "a:", "a\0:1", "\x1b[31m:1", "\ud800:1", "a:\n"])
def test_a_step_that_could_not_have_that_name_gets_no_result_by_hand(step: str) -> None:
    with pytest.raises((InvalidKey, IllegalMove)):
        set_by_hand(ROW, (), step, b"1", Sender("Ann"), now=5)
