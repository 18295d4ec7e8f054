"""What a row says of a sealed payload is vouched for with it: nothing of it can be changed, exchanged or taken away."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from perdure.errors import UnreadablePayload
from perdure.kernel.event import Event, EventType
from perdure.kernel.message import Message, MessageType
from perdure.kernel.process import Process, Status
from perdure.kernel.stored import Undecodable
from perdure.store.sealed import seal
from perdure.store.sealed.codec import AesGcm
from perdure.store.sealed.records import RecordOpener, RecordSealer
from perdure.store.sealed.seal import PayloadSlot, Seal
from perdure.testing.conformance import Trial
from perdure.testing.conformance.trial import finished, forced, going_on, only
from tests.store.sealed.conftest import Tried
from tests.store.sealed.ground import OLD, codecs

ID, OTHER = bytes(16), bytes(range(16))
CHAIN = Seal(codecs())
STEP = Event(3, 2, EventType.STEP_COMPLETED, 7, "1", "charge", b'"yes"', b"8 bytes!")
WORD = Message(OTHER, ID, MessageType.SIGNAL, "declined", b'"no"', "k", b'{"who":"ann"}')
ENDED = Process(ID, "order", None, b"[1]", status=Status.COMPLETED, result=b'"paid"')
REQUIRED = [AesGcm({"old": OLD}, required=True)]


def opened_event(stored: Event) -> Event:
    return RecordOpener(CHAIN, offload=False).event(stored, ID, 1)


@pytest.mark.parametrize("payload", [b'"yes"', b"null", b"", None])
@pytest.mark.parametrize("digest", [b"8 bytes!", None])
def test_an_event_comes_back_as_it_was_and_shows_nothing(payload: bytes | None, digest: bytes | None) -> None:
    event = replace(STEP, payload=payload, digest=digest)
    [stored] = RecordSealer(CHAIN, None)._events(ENDED, (event,))
    form = seal.SEALED_NOTHING if payload is None else seal.SEALED_AS_SAID
    assert stored.payload is not None and stored.payload[:2] == form and stored.digest is None
    assert opened_event(stored) == event


@pytest.mark.parametrize(
    "said",
    [
        {"type": EventType.STEP_FAILED},
        {"name": "refund"},
        {"place": "2"},
        {"message": 4},
        {"number": 4},
        {"payload": None},
    ],
    ids=lambda said: next(iter(said)),
)
@pytest.mark.parametrize("payload", [b'"yes"', None])
def test_an_event_whose_row_says_something_else_is_refused(said: dict[str, object], payload: bytes | None) -> None:
    [stored] = RecordSealer(Seal(REQUIRED), None)._events(ENDED, (replace(STEP, payload=payload),))
    found = RecordOpener(Seal(REQUIRED), offload=False).event(replace(stored, **said), ID, 1)
    assert isinstance(found.payload, Undecodable) and isinstance(found.payload.why, UnreadablePayload)


@pytest.mark.parametrize(
    "said",
    [{"name": "approved"}, {"type": MessageType.CALL}, {"key": None}, {"sender": b'{"who":"eve"}'}, {"id": ID}],
    ids=lambda said: next(iter(said)),
)
def test_a_message_whose_row_says_something_else_is_refused(said: dict[str, object]) -> None:
    stored = RecordSealer(CHAIN, None).message(WORD)
    assert RecordOpener(CHAIN, offload=False).message(replace(stored, number=9, at=5)) == replace(WORD, number=9, at=5)
    assert isinstance(RecordOpener(CHAIN, offload=False).message(replace(stored, **said)).payload, Undecodable)


async def test_results_of_two_steps_exchanged_with_their_names_and_numbers_are_refused(tried: Tried) -> None:
    async with tried() as trial, tried(bare=True) as below:
        row = await two_steps(trial)
        one, two = await below.store.history(row.id, 1)
        kept = await below.row(row.id)
        swapped = (replace(one, number=3, name=two.name), replace(two, number=4, name=one.name))
        await below.done(going_on(kept, events=swapped))
        found = await trial.store.history(row.id, 1)
        assert [isinstance(event.payload, Undecodable) for event in found] == [False, False, True, True]


async def two_steps(trial: Trial) -> Process:
    """A process with the results of two steps in its history."""
    row = await trial.owned(await trial.worker())
    at = row.created_at
    first = Event(1, 1, EventType.STEP_COMPLETED, at, "1", "check", b'"declined"', b"8 bytes!")
    return await trial.done(
        going_on(row, events=(first, Event(2, 2, EventType.STEP_COMPLETED, at, "1", "ask", b'"approved"', b"8 bytes?")))
    )


async def test_an_end_that_nobody_vouches_for_is_refused_where_all_must_be_sealed(tried: Tried) -> None:
    async with tried(REQUIRED) as trial, tried(bare=True) as below:
        worker = await trial.worker()
        honest, cut = await trial.owned(worker), await trial.owned(worker)
        await trial.done(finished(honest, result=None))
        assert (await trial.row(honest.id)).result is None
        await below.done(finished(await below.row(cut.id), result=None))
        result = (await trial.row(cut.id)).result
        assert isinstance(result, Undecodable) and "did not go through aes-gcm" in str(result.why)


@pytest.mark.parametrize("status", [Status.FAILED, Status.CANCELLED])
def test_a_failure_does_not_pass_for_another_end_nor_for_that_of_another_run(status: Status) -> None:
    ended = replace(ENDED, status=status, result=None, error=b'{"type":"Boom"}')
    stored = RecordSealer(CHAIN, None)._fields(ended)
    opening = RecordOpener(CHAIN, offload=False)
    assert opening.process(stored).error == ended.error
    other = Status.FAILED if status is Status.CANCELLED else Status.CANCELLED
    for lie in (replace(stored, status=other), replace(stored, run=2)):
        assert isinstance(opening.process(lie).error, Undecodable)


async def test_what_was_sealed_for_its_place_alone_is_still_opened(tried: Tried) -> None:
    async with tried() as trial, tried(bare=True) as below:
        row = await trial.owned(await trial.worker())
        event = Event(1, 1, EventType.STEP_COMPLETED, row.created_at, "1", "check", None, None)
        old = CHAIN.close(b'"yes"', PayloadSlot(seal.of_event(row.id, 1, event).place), b"8 bytes!")
        assert old[:2] == seal.SEALED
        await below.done(going_on(await below.row(row.id), events=(replace(event, payload=old),)))
        found = only(await trial.store.history(row.id, 1))
        assert (found.payload, found.digest) == (b'"yes"', b"8 bytes!")
        await trial.done(forced(await trial.row(row.id)))
