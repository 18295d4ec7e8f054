"""A sealed store: what it keeps is sealed, what it gives is open, and no key, codec or copy makes two of one."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from perdure.errors import BadRecord, UnreadablePayload
from perdure.kernel.commit import Start, StartVerdict, Verdict
from perdure.kernel.event import Event, EventType
from perdure.kernel.message import SendVerdict
from perdure.kernel.process import Process, Status
from perdure.kernel.stored import Undecodable
from perdure.kernel.worker import Beat, LeaseRenewal
from perdure.store.sealed.codec import AesGcm, Codec, Zstd
from perdure.store.sealed.offload import Folder
from perdure.testing.conformance import Trial
from perdure.testing.conformance.trial import LEASE, SILENCE, finished, forced, going_on, only, released
from tests.store.sealed.conftest import Tried
from tests.store.sealed.ground import NEW, OLD

SECRET = b'{"card":"4000-1234"}'
LONG = b'{"card":"4000-1234","note":"' + b"a" * 3000 + b'"}'
ROTATED: list[Codec] = [Zstd(above=64), AesGcm({"new": NEW, "old": OLD})]
CHAINS: dict[str, list[Codec]] = {
    "rotated": ROTATED,
    "without compression": [Zstd(seals=False), AesGcm({"old": OLD})],
    "not encrypted yet": [Zstd(above=64), AesGcm({"old": OLD}, seals=False)],
    "rotated and without compression": [Zstd(seals=False), AesGcm({"new": NEW, "old": OLD})],
}


async def lived(trial: Trial, payload: bytes = SECRET) -> Process:
    """A process of which every payload is the same."""
    worker = await trial.worker()
    row = await trial.owned(worker, input=payload, key="k")
    event = Event(1, 1, EventType.STEP_COMPLETED, row.created_at, "1", "charge", payload, b"8 bytes!")
    row = await trial.done(going_on(row, events=(event,), state=payload))
    await trial.store.beat(Beat(worker, (LeaseRenewal(row.id, row.token, payload),), LEASE, SILENCE))
    await trial.send(row.id, payload=payload)
    return await trial.done(forced(row, payload=payload, state=payload, progress=payload, error=payload))


@pytest.mark.parametrize("payload", [SECRET, LONG], ids=["short", "long"])
async def test_everything_is_sealed_in_the_database_and_open_to_its_users(
    tried: Tried, folder: Folder, payload: bytes
) -> None:
    async with tried(offload=folder) as trial, tried(bare=True) as below:
        row = await lived(trial, payload)
        whole, kept = await trial.whole(row.id), await below.whole(row.id)
        assert (whole.process.input, whole.process.state, whole.process.error) == (payload,) * 3
        assert [event.payload for event in whole.events] == [payload] * 2
        assert [event.digest for event in whole.events] == [b"8 bytes!", None]
        assert [message.payload for message in whole.messages] == [payload]
        assert b"4000" not in repr(kept).encode() and b"8 bytes!" not in repr(kept).encode()
        assert kept.process.key == "k" and kept.events[0].name == "charge"
        for blob in folder.path.rglob("*"):
            assert blob.is_dir() or b"4000" not in blob.read_bytes()


async def test_rule_05_a_commit_sent_again_by_another_store_is_known_again(tried: Tried, folder: Folder) -> None:
    async with tried(offload=folder) as trial, tried(offload=folder) as other:
        row = await trial.owned(await trial.worker())
        event = Event(1, 1, EventType.STEP_COMPLETED, row.created_at, "1", "charge", LONG, b"8 bytes!")
        commit = released(row, row.due_at, events=(event,), state=LONG)
        assert (await trial.commit(commit)).verdict is Verdict.APPLIED
        assert (await other.commit(commit)).verdict is Verdict.APPLIED
        assert (
            await trial.commit(replace(commit, events=(replace(event, payload=SECRET),)))
        ).verdict is Verdict.REFUSED


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS.keys())
@pytest.mark.parametrize("payload", [SECRET, LONG], ids=["short", "long"])
@pytest.mark.parametrize("pruned", [False, True], ids=["living", "pruned"])
async def test_rule_24_the_same_input_is_known_again_after_keys_and_codecs_were_changed(
    tried: Tried, chain: list[Codec], payload: bytes, pruned: bool
) -> None:
    async with tried() as before, tried(chain) as after:
        row = await before.owned(await before.worker(), input=payload, key="k")
        if pruned:
            await before.done(finished(row))
            await before.time.advance(1)
            await before.store.prune(0, 10**12, 100)
        for trial in (before, after):
            same, other = trial.process(key="k", input=payload), trial.process(key="k", input=b"[2]")
            [first, second] = await trial.store.start([Start(same), Start(other)])
            assert (first.verdict, first.id) == (StartVerdict.EXISTS, row.id)
            assert (second.verdict, second.id) == (StartVerdict.CONFLICT, row.id)


async def test_rule_24_the_same_large_input_is_known_again_although_it_lies_outside(
    tried: Tried, folder: Folder
) -> None:
    async with tried(offload=folder) as before, tried(ROTATED, folder) as after:
        noise = bytes(range(256)) * 8
        row = await before.started(key="k", input=noise)
        for trial in (before, after):
            [answer] = await trial.store.start([Start(trial.process(key="k", input=noise))])
            assert (answer.verdict, answer.id) == (StartVerdict.EXISTS, row.id)
            [answer] = await trial.store.start([Start(trial.process(key="k", input=noise[1:]))])
            assert answer.verdict is StartVerdict.CONFLICT


async def test_a_start_is_not_guessed_when_the_input_of_its_key_cannot_be_opened(tried: Tried) -> None:
    async with tried() as before, tried([AesGcm({"new": NEW})]) as after:
        await before.started(key="k", input=SECRET)
        with pytest.raises(BadRecord, match="key 'old'"):
            await after.store.start([Start(after.process(key="k", input=SECRET))])


async def test_what_an_old_key_sealed_is_sealed_anew_by_the_next_commit(tried: Tried) -> None:
    async with tried() as before, tried(ROTATED) as after, tried([AesGcm({"new": NEW})]) as without:
        row = await before.owned(await before.worker(), input=b"[1]")
        row = await before.done(going_on(row, state=SECRET))
        await after.done(going_on(await after.row(row.id), state=SECRET))
        assert (await without.row(row.id)).state == SECRET
        assert isinstance((await without.row(row.id)).input, Undecodable), "no commit writes the input"


async def test_no_commit_writes_the_input_so_that_it_need_not_be_sealed_again(tried: Tried) -> None:
    async with tried(bare=True) as trial:
        row = await trial.owned(await trial.worker(), input=SECRET)
        assert (await trial.done(going_on(row, input=b"[2]"))).input == SECRET


async def test_a_claim_tells_whose_payloads_cannot_be_opened_and_opens_those_of_the_others(tried: Tried) -> None:
    async with tried() as before, tried([AesGcm({"new": NEW})]) as after:
        stranger = await before.started(input=SECRET)
        known = await after.started(input=SECRET)
        taken = {one.process.id: one for one in (await after.claim(await after.worker())).claimed}
        assert taken[known.id].trouble is None and taken[known.id].process.input == SECRET
        trouble = taken[stranger.id].trouble
        assert isinstance(trouble, UnreadablePayload)
        assert "the input of process" in str(trouble) and "Add that key" in str(trouble)


async def test_what_cannot_be_opened_goes_through_sweeps_and_commands_unharmed(tried: Tried) -> None:
    async with tried() as before, tried([AesGcm({"new": NEW})]) as after:
        row = await before.owned(await before.worker(), input=SECRET)
        row = await before.done(going_on(row, state=LONG))
        seen = await after.row(row.id)
        assert isinstance(seen.state, Undecodable)
        await after.done(forced(seen, EventType.BROKEN, status=Status.BROKEN, reminder=True, error=b'{"a":1}'))
        again = await before.row(row.id)
        assert (again.input, again.state) == (SECRET, LONG)


async def test_what_cannot_be_opened_is_not_written_to_another_place(tried: Tried) -> None:
    async with tried() as before, tried([AesGcm({"new": NEW})]) as after:
        row = await before.owned(await before.worker())
        row = await before.done(going_on(row))
        [event] = await after.store.history(row.id, 1)
        moved = forced(await after.row(row.id), events=(replace(event, number=2),))
        with pytest.raises(BadRecord, match="key 'old'"):
            await after.commit(moved)
        assert (await before.row(row.id)).version == row.version


async def test_a_message_sent_twice_is_one_message_whoever_sealed_it(tried: Tried) -> None:
    async with tried() as before, tried(ROTATED) as after:
        row = await before.started()
        message = before.signal(row.id, payload=SECRET, key="m")
        for trial in (before, after, before):
            [answer] = await trial.store.send([message])
            assert (answer.verdict, answer.number) == (SendVerdict.DELIVERED, 1)
        assert (await after.send(row.id, key="m")).verdict is SendVerdict.DUPLICATE
        assert only(await after.store.messages([(row.id, 0)])).payload == SECRET


async def test_a_payload_copied_to_another_row_or_field_is_refused(tried: Tried) -> None:
    async with tried() as trial, tried(bare=True) as below:
        worker = await trial.worker()
        rich, poor = await trial.owned(worker), await trial.owned(worker)
        rich = await trial.done(going_on(rich, state=b'{"paid":true}'))
        stolen = (await below.row(rich.id)).state
        assert (await trial.row(rich.id)).state == b'{"paid":true}'
        await below.done(going_on(await below.row(poor.id), state=stolen))
        await below.done(going_on(await below.row(rich.id), state=None, progress=stolen))
        for row, name in ((poor, "state"), (rich, "progress")):
            field = getattr(await trial.row(row.id), name)
            assert isinstance(field, Undecodable) and "moved from another place" in str(field.why)


async def test_children_and_messages_of_a_commit_are_sealed_too(tried: Tried) -> None:
    async with tried() as trial, tried(bare=True) as below:
        row = await trial.owned(await trial.worker())
        child, target = trial.process(input=SECRET, parent=row.id), await trial.started()
        commit = replace(going_on(row), starts=(Start(child),), sends=(trial.signal(target.id, payload=SECRET),))
        await trial.done(commit)
        assert (await trial.row(child.id)).input == SECRET
        assert only(await trial.store.messages([(target.id, 0)])).payload == SECRET
        assert b"4000" not in (await below.row(child.id)).input
        assert b"4000" not in only(await below.store.messages([(target.id, 0)])).payload
