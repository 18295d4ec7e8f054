"""A trial: one store on its ground, with short words for what every test of the suite does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, json
from msgspec.structs import replace

from perdure.clock import SECOND
from perdure.kernel.claim import Claim, ClaimAnswer, Claimed
from perdure.kernel.commit import Commit, CommitAnswer, Start, Verdict
from perdure.kernel.event import Event, EventType
from perdure.kernel.message import Message, MessageType, SendAnswer
from perdure.kernel.process import Process, Status
from perdure.kernel.worker import Beat, BeatAnswer, LeaseRenewal, WorkerRow
from perdure.store.base import Search, Store
from perdure.testing.clock import MovableMachine
from perdure.testing.conformance.ground import Ground

KIND = "order"
CODE = "1"
HOSTED = ((KIND, CODE),)
LEASE = 15 * SECOND
SILENCE = 15 * SECOND


class Whole(Struct, frozen=True):
    """Everything the store keeps of one process, to be compared before and after."""

    process: Process
    events: tuple[Event, ...]
    messages: tuple[Message, ...]


class Trial:
    """One store on trial. ``ids`` gives fresh ids; ``time`` moves the store's clock."""

    def __init__(self, ground: Ground, store: Store, ids: MovableMachine | None = None) -> None:
        self.ground = ground
        self.store = store
        self.time = ground.time
        self.ids = ids or MovableMachine()

    def process(self, **fields: Any) -> Process:
        """A process as a client would start it, with ``fields`` changed."""
        fresh: dict[str, Any] = {"id": self.ids.new_id(), "kind": KIND, "key": None, "input": b"[1]", "code": CODE}
        return Process(**(fresh | fields))

    async def started(self, **fields: Any) -> Process:
        """Start one process; the answer is its row."""
        process = self.process(**fields)
        await self.store.start([Start(process)])
        return await self.row(process.id)

    async def worker(self, name: str = "here") -> bytes:
        """Enlist a worker; the answer is its id."""
        worker = WorkerRow(id=self.ids.new_id(), name=name)
        await self.store.enlist(worker, SILENCE)
        return worker.id

    async def claim(self, worker: bytes, limit: int = 100, **fields: Any) -> ClaimAnswer:
        """Claim what is due of the suite's own kind."""
        request: dict[str, Any] = {"hosted": HOSTED, "lease": LEASE} | fields
        return await self.store.claim(Claim(worker=worker, limit=limit, **request))

    async def owned(self, worker: bytes, **fields: Any) -> Process:
        """Start a process and claim it for this worker; the answer is the row after the claim."""
        process = await self.started(**fields)
        hosted = ((process.kind, process.code),)
        [taken] = (await self.claim(worker, only=process.id, hosted=hosted)).claimed
        return taken.process

    async def row(self, process: bytes) -> Process:
        """The row as it is now; LookupError if there is none."""
        found = await self.store.search(Search(ids=(process,)))
        if not found:
            raise LookupError(f"no process {process.hex()}")
        return found[0]

    async def whole(self, process: bytes) -> Whole:
        """The row, the events of all its runs, and all its messages."""
        row = await self.row(process)
        events: list[Event] = []
        for run in range(1, row.run + 1):
            events += await self.store.history(process, run, limit=100_000)
        return Whole(row, tuple(events), tuple(await self.store.messages([(process, 0)])))

    async def stored(self) -> list[Process]:
        """Every row there is, newest first."""
        return await self.store.search(Search(limit=100_000, tasks=True))

    def signal(self, process: bytes, name: str = "approval", **fields: Any) -> Message:
        """A signal to this process, with a fresh id."""
        fresh: dict[str, Any] = {"id": self.ids.new_id(), "process": process, "type": MessageType.SIGNAL, "name": name}
        return Message(**(fresh | fields))

    async def send(self, process: bytes, name: str = "approval", **fields: Any) -> SendAnswer:
        """Send one signal."""
        [answer] = await self.store.send([self.signal(process, name, **fields)])
        return answer

    async def commit(self, commit: Commit) -> CommitAnswer:
        """Send one commit."""
        [answer] = await self.store.commit([commit])
        return answer

    async def done(self, commit: Commit) -> Process:
        """Send one commit that must be applied; the answer is the row after it."""
        answer = await self.commit(commit)
        if answer.verdict is not Verdict.APPLIED:
            raise LookupError(f"the commit was answered {answer.verdict!r}, not applied")
        return await self.row(commit.after.id)

    async def beat(self, worker: bytes, *rows: Process, lease: int = LEASE) -> BeatAnswer:
        """Beat, prolonging the leases of these rows."""
        renewals = tuple(LeaseRenewal(row.id, row.token) for row in rows)
        return await self.store.beat(Beat(worker, renewals, lease, SILENCE))


def going_on(row: Process, steps: int = 1, **fields: Any) -> Commit:
    """The commit of an owner that keeps the row: results of ``steps`` steps, and the lease is renewed."""
    fields = {"lease": LEASE} | fields
    return _commit(row, _results(row, steps), fields)


def released(row: Process, due_at: int | None, steps: int = 1, **fields: Any) -> Commit:
    """The commit that records ``steps`` results and frees the row, due again at ``due_at``."""
    return _commit(row, _results(row, steps), {"owner": None, "due_at": due_at} | fields)


def resting(row: Process, due_at: int | None, status: Status = Status.RUNNING, **fields: Any) -> Commit:
    """The commit that frees the row with nothing but a reminder: idle, held or broken."""
    rest = {"owner": None, "due_at": due_at, "reminder": True, "status": status}
    return _commit(row, _results(row, 1), rest | fields)


def finished(row: Process, status: Status = Status.COMPLETED, **fields: Any) -> Commit:
    """The commit that records one last event and ends the process."""
    last = Event(row.events + 1, 1, EventType[status.name], at=row.created_at)
    ended = {"owner": None, "due_at": None, "reminder": False, "status": status, "result": b'"done"'}
    return _commit(row, (last,), ended | fields)


def forced(row: Process, kind: EventType = EventType.RESUMED, **fields: Any) -> Commit:
    """A person's command on a row, even an owned one: a new token, no owner, due now unless ``fields`` differ."""
    event = Event(row.events + 1, 0, kind, at=row.created_at, payload=fields.pop("payload", b'{"who":"ann"}'))
    free = {"token": row.token + 1, "owner": None, "due_at": row.created_at, "reminder": False}
    return _commit(row, (event,), free | fields)


def _results(row: Process, steps: int) -> tuple[Event, ...]:
    return tuple(
        Event(
            number, row.version + 1, EventType.STEP_COMPLETED, row.created_at, str(number), "charge", b"1", b"8 bytes!"
        )
        for number in range(row.events + 1, row.events + steps + 1)
    )


_OF_THE_COMMIT = ("consumed", "lease", "not_before", "offered", "attributes_set", "progress_kept", "published")


def _commit(row: Process, events: Sequence[Event], fields: dict[str, Any]) -> Commit:
    own = {name: fields.pop(name) for name in _OF_THE_COMMIT if name in fields}
    own.setdefault("attributes_set", "attributes" in fields)
    events = tuple(fields.pop("events", events))
    after = {"version": row.version + 1, "events": events[-1].number if events else row.events} | fields
    changed = replace(row, **after)
    stamped = tuple(replace(event, token=changed.token, version=changed.version) for event in events)
    return Commit(row.token, row.version, changed, stamped, **own)


def plain(row: Process) -> Process:
    """The row with its attributes written in one way: a database may keep their meaning and not their spaces."""
    if row.attributes is None:
        return row
    return replace(row, attributes=json.encode(json.decode(row.attributes), order="sorted"))


def only(claimed: Sequence[Claimed]) -> Claimed:
    """The one row of a claim that must have taken exactly one."""
    [taken] = claimed
    return taken
