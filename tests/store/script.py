"""A script: a random but repeatable sequence of what workers, clients, people and supervisors ask of a store."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from perdure.clock import SECOND
from perdure.errors import IllegalMove
from perdure.kernel import command, run, transition
from perdure.kernel.claim import Claim
from perdure.kernel.commit import Commit, Outcome, Start, Verdict
from perdure.kernel.event import Event, EventType
from perdure.kernel.failure import Failure
from perdure.kernel.message import Message, MessageType
from perdure.kernel.process import FINAL, Process, Status
from perdure.kernel.worker import Beat, LeaseRenewal, WorkerRow
from perdure.store.base import Overdue, Search
from perdure.testing.clock import MovableMachine
from perdure.testing.model import Model
from tests.store import family
from tests.store.family import PAIRS

LEASE = 15 * SECOND
IDLE = 45 * SECOND
ERROR = Failure(type="Refused", message="no").encode()


class Line(Struct, frozen=True):
    """One request, what the model answered, and the processes that it may have changed."""

    verb: str
    arguments: tuple[Any, ...]
    answer: Any
    touched: frozenset[bytes]


class Script:
    """Makes lines one by one; each is played on the model at once, so that the next one knows what was answered."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.ids = MovableMachine(seed=seed)
        self.model = Model(self.ids.now())
        self.hands: dict[bytes, Process] = {}
        self.stale: list[Process] = []
        self.sent: dict[str, list[Any]] = {"start": [], "send": [], "commit": []}
        self.workers: list[bytes] = []
        self.probes: set[str] = set()

    def next(self) -> Line:
        """The next line."""
        verbs = {
            self.start: 4, self.send: 5, self.claim: 7, self.turns: 8, self.commands: 3, self.late: 2, self.resend: 3,
            self.beat: 3, self.enlist: 2, self.retire: 3, self.rescue: 3, self.advance: 3, self.prune: 1, self.sweep: 3,
            self.look: 2,
        }  # fmt: skip
        if not self.workers:
            return self.enlist()
        [verb] = self.chance.choices(list(verbs), list(verbs.values()))
        return verb()

    def _line(self, verb: str, arguments: tuple[Any, ...], touched: Sequence[bytes] = ()) -> Line:
        answer = getattr(self.model, verb)(*arguments)
        if verb in self.sent:
            self.sent[verb].extend(arguments[0])
        for one in answer if isinstance(answer, list) else [answer]:
            self.probes.add(f"{verb} {getattr(one, 'verdict', '')}".strip())
        return Line(verb, arguments, answer, frozenset(touched))

    def _some(self, things: Sequence[Any], most: int) -> list[Any]:
        return self.chance.sample(list(things), min(len(things), self.chance.randint(1, most)))

    def _maybe(self, rate: float) -> bool:
        return self.chance.random() < rate

    # Clients

    def start(self) -> Line:
        """Start a few processes: with and without keys, owned or free, with a first turn or not."""
        starts = [self._start() for _ in range(self.chance.randint(1, 4))]
        starts = self._orderly(starts)
        return self._line("start", (starts,), [start.process.id for start in starts])

    def _orderly(self, starts: list[Start]) -> list[Start]:
        """Which of two starts of one key comes first in a batch is open if an ended worker sends one: then send one."""
        ended = any(start.process.owner and not self.model.alive(start.process.owner) for start in starts)
        return starts[:1] if ended else starts

    def _start(self) -> Start:
        chance, now = self.chance, self.model.now
        kind, code = chance.choice(PAIRS)
        process = Process(
            id=self.ids.new_id(),
            kind=kind,
            code=code,
            key=f"key/{chance.randint(1, 12)}" if self._maybe(0.5) else None,
            input=chance.choice((b"[1]", b"[1]", b"[2]", b'["\\u00e9"]')),
            priority=chance.choice((0, 4, 4, 9)),
            deadline=now + chance.randint(1, 90) * SECOND if self._maybe(0.2) else None,
            attributes=b'{"city":"Riga"}' if self._maybe(0.3) else None,
            due_at=now + chance.randint(0, 30) * SECOND if self._maybe(0.2) else None,
        )
        if self._maybe(0.6):
            return Start(process)
        return self._eager(process)

    def _eager(self, process: Process) -> Start:
        """A start whose first turn the starter has run: still in hand, asleep, or ended."""
        now, worker = self.model.now, self.chance.choice(self.workers)
        opened = Process(
            id=process.id, kind=process.kind, key=process.key, input=process.input, code=process.code, token=1,
            owner=worker, created_at=now, opened_at=now, priority=process.priority, attributes=process.attributes,
        )  # fmt: skip
        first = self._turn(opened)
        after = first.after
        return Start(after, first.events, first.lease)

    def send(self) -> Line:
        """Send a few messages, some under keys used before, some to nobody or to finished processes."""
        known = [*self.model.rows, self.ids.new_id()]
        messages = [self._message(self.chance.choice(known[-12:])) for _ in range(self.chance.randint(1, 4))]
        return self._line("send", (messages,), [message.process for message in messages])

    def _message(self, process: bytes) -> Message:
        return Message(
            id=self.ids.new_id(),
            process=process,
            type=self.chance.choice(list(MessageType)),
            name=self.chance.choice(("approval", "")),
            payload=b"%d" % self.chance.randint(0, 99),
            key=f"mail/{self.chance.randint(1, 3)}" if self._maybe(0.3) else None,
        )

    # Workers

    def enlist(self) -> Line:
        """A new worker comes."""
        worker = WorkerRow(id=self.ids.new_id(), name=f"worker {len(self.workers)}")
        self.workers = [*self.workers[-3:], worker.id]
        return self._line("enlist", (worker, LEASE))

    def claim(self) -> Line:
        """A worker takes what is due, or one process, or suspects alone."""
        chance, rows = self.chance, list(self.model.rows)
        claim = Claim(
            worker=chance.choice(self.workers),
            hosted=tuple(self._some(PAIRS, len(PAIRS))),
            limit=chance.choice((0, 1, 3, 50)),
            lease=LEASE,
            alone=self._maybe(0.25),
            only=chance.choice(rows) if rows and self._maybe(0.2) else None,
        )
        line = self._line("claim", (claim,))
        for one in line.answer.claimed:
            self.probes.add("takeover" if one.was_owned_by else "claimed")
            if one.process.id in self.hands:
                self.stale.append(self.hands[one.process.id])
            self.hands[one.process.id] = one.process
        if line.answer.suspects:
            self.probes.add("suspects")
        return Line(line.verb, line.arguments, line.answer, frozenset(one.process.id for one in line.answer.claimed))

    def turns(self) -> Line:
        """Owners commit a batch of turns of what they hold, or think they hold."""
        rows = self._some(list(self.hands.values()), 5) if self.hands else []
        rows.sort(key=_by_id)  # of two commits of a batch that tell one process, either may come first
        commits = [self._turn(row, outward=True) for row in rows]
        line = self._commit(commits)
        for before, commit, answer in zip(rows, commits, line.answer, strict=True):
            self.probes |= family.probes(commit, answer.verdict)
            del self.hands[commit.after.id]
            row = self.model.rows.get(commit.after.id)
            later = answer.verdict in (Verdict.EARLY, Verdict.READ_FIRST)
            if row and (later or (answer.verdict is Verdict.APPLIED and row.owner)):
                self.hands[row.id] = row
            elif self._maybe(0.5):
                self.stale.append(before)
        return line

    def _commit(self, commits: list[Commit]) -> Line:
        return self._line("commit", (commits,), [id for commit in commits for id in _touched(commit)])

    def late(self) -> Line:
        """Somebody who was paused answers from long ago."""
        rows = {row.id: row for row in self._some(self.stale[-20:], 3)} if self.stale else {}
        late = [row for row in sorted(rows.values(), key=_by_id) if row.owner and not row.final]
        return self._commit([self._turn(row, outward=True) for row in late])

    def _turn(self, row: Process, outward: bool = False) -> Commit:
        """What the code of this process made of what has come."""
        chance, now = self.chance, self.model.now
        events: list[Event] = []
        history = self.model.events.get((row.id, row.run), [])
        turn = max((event.turn for event in history if event.number <= row.events), default=0) + 1
        number, not_before = row.events, 0
        for _ in range(chance.randint(0, 3)):
            number += 1
            type = chance.choice((EventType.STEP_COMPLETED, EventType.STEP_FAILED, EventType.TIMER_FIRED))
            if type is EventType.TIMER_FIRED:
                not_before = now + chance.choice((-SECOND, 0, 0, 1))
            place = f"{row.run}.{number}"
            events.append(Event(number, turn, type, now, place, "charge", b'"x"', b"12345678"))
        consumed = []
        for heard in range(row.seen + 1, row.inbox + 1):
            if self._maybe(0.7) or heard > row.seen + 3:
                number += 1
                events.append(Event(number, turn, EventType.MESSAGE_RECEIVED, now, "", "approval", message=heard))
                consumed.append((heard, number))
            else:
                break
        brings = None
        if outward and len(consumed) == row.inbox - row.seen and self._maybe(0.3):
            number += 1
            brings = replace(self._message(row.id), number=row.inbox + 1)
            events.append(Event(number, turn, EventType.MESSAGE_RECEIVED, now, "", brings.name, message=brings.number))
            consumed.append((brings.number, number))
        starts, sends = self._outward(row, events) if outward else ((), ())
        outcome = self._outcome(now)
        commit = transition.turn(
            row, events, outcome, now=now, lease=LEASE, idle_at=now + IDLE, consumed=tuple(consumed),
            not_before=not_before, cleared=self._maybe(0.1) and bool(events), starts=starts, sends=sends,
        )  # fmt: skip
        return commit if brings is None else replace(commit, brings=brings)

    def _outward(self, row: Process, events: list[Event]) -> tuple[tuple[Start, ...], tuple[Message, ...]]:
        """What a turn sends out: children, and messages to known processes, the new children, itself or nobody."""
        starts = family.children(self.chance, self.ids, row, events, self.model.now) if self._maybe(0.3) else ()
        if self._maybe(0.7):
            return starts, ()
        known = [*list(self.model.rows)[-12:], *(start.process.id for start in starts), self.ids.new_id()]
        told = [self._message(self.chance.choice(known)) for _ in range(self.chance.randint(1, 3))]
        return starts, (*told, *self._some(self.sent["send"][-10:], 1))

    def _outcome(self, now: int) -> Outcome:
        chance = self.chance
        return chance.choices(
            [
                Outcome(busy=True, awaiting="step charge", state=b'"at the bank"'),
                Outcome(wake_at=now + chance.randint(0, 40) * SECOND, awaiting="timer"),
                Outcome(awaiting="signal approval"),
                Outcome(status=Status.COMPLETED, result=b'"done"'),
                Outcome(status=Status.FAILED, error=ERROR),
                Outcome(status=Status.CANCELLED),
                Outcome(status=Status.BROKEN, error=ERROR),
            ],
            [6, 4, 3, 3, 1, 1, 1],
        )[0]

    def beat(self) -> Line:
        """A worker beats and prolongs what it holds, or held."""
        worker = self.chance.choice(self.workers)
        rows = [row for row in self.hands.values() if row.owner == worker]
        rows += [row for row in self.stale[-5:] if row.owner == worker]
        renewals = {row.id: LeaseRenewal(row.id, row.token, b"0.5" if self._maybe(0.3) else None) for row in rows}
        if self._maybe(0.1):
            nobody = self.ids.new_id()
            renewals[nobody] = LeaseRenewal(nobody, 1)
        beat = Beat(worker, tuple(renewals.values()), LEASE, LEASE)
        return self._line("beat", (beat,), [id for id in renewals if id in self.model.rows])

    def retire(self) -> Line:
        """A worker ends, or somebody who saw fewer beats believes so."""
        unlucky = [row.owner for row in self.model.rows.values() if row.owner and row.deaths]
        worker = self.chance.choice(unlucky if unlucky and self._maybe(0.85) else self.workers)
        beats = self.model.workers[worker].beats
        return self._line("retire", (worker, self.chance.choice((None, beats, beats - 1)), self._maybe(0.7)))

    # People, supervisors, and time

    def commands(self) -> Line:
        """People and supervisors act on rows, which they read now or a while ago."""
        known = [row for row in self.model.rows.values() if not row.final or self._maybe(0.3)] + self.stale[-3:]
        rows = {row.id: row for row in self._some(known, 3)} if known else {}
        commits = [commit for row in rows.values() if (commit := self._command(row)) is not None]
        return self._commit(sorted(commits, key=lambda commit: commit.after.id))

    def rescue(self) -> Line:
        """A supervisor frees what ended workers held; two may do so at once."""
        orphans = self.model.search(Search(overdue=Overdue.ORPHANED, limit=3))
        now, died, held = self.model.now, self._maybe(0.9), self.chance.choice((1, 2, 7, 1000))
        return self._commit(
            [
                transition.orphaned(row, now=now, died=died, worker="w", idle_at=now + IDLE, held=held)
                for row in sorted(orphans, key=_by_id)
            ]
        )

    def _command(self, row: Process) -> Commit | None:
        now, sender = self.model.now, transition.Sender(who=self.chance.choice(("ann", "bob")), origin="client")
        history = self.model.events.get((row.id, row.run), [])
        try:
            if row.reminder and self._maybe(0.3):
                return transition.reminded(row, idle_at=now + IDLE)
            if row.deadline is not None and row.deadline <= now and row.status not in FINAL:
                return transition.expired(row, history, now=now)
            if row.status in (Status.FAILED, Status.BROKEN):
                return run.retried(row, history, sender, now=now)
            if row.status is Status.HELD and self._maybe(0.5):
                return command.resumed(row, sender, now=now)
            if row.status is Status.RUNNING and self._maybe(0.1):
                return command.held(row, sender, now=now, idle_at=now + IDLE)
            if self._maybe(0.1):
                return run.restarted(row, history, sender, now=now)
            if not row.final and self._maybe(0.1):
                return command.bounded(row, sender, now + IDLE, now=now)
            if self._maybe(0.3):
                return transition.terminated(row, sender, history, now=now)
            if row.owner and self._maybe(0.3):
                return transition.released(row, due_at=now)
        except IllegalMove:
            return None
        return None

    def resend(self) -> Line:
        """Somebody whose connection died sends again what was sent before."""
        verb = self.chance.choice([verb for verb in self.sent if self.sent[verb]] or ["start"])
        records = self._some(self.sent[verb][-30:], 4) if self.sent[verb] else []
        if verb == "commit":
            records = sorted({commit.after.id: commit for commit in records}.values(), key=_id)
        elif verb == "start":
            records = self._orderly(records)
        ids = [id for record in records for id in _touched(record)]
        self.probes.add(f"{verb} again")
        return self._line(verb, (records,), ids)

    def sweep(self) -> Line:
        """A supervisor looks for one kind of overdue row."""
        what = self.chance.choice([*Overdue, Overdue.ORPHANED])
        most, owner = self.chance.choice((1, 3, 500)), self.chance.choice(self.workers)
        line = self._line("search", (Search(overdue=what, limit=most, owner=owner),))
        if line.answer:
            self.probes.add(f"overdue {what}")
        return line

    def look(self) -> Line:
        """Somebody looks for processes, or counts them."""
        chance, rows = self.chance, list(self.model.rows)
        now = self.model.now
        search = Search(
            ids=tuple(self._some([*rows, self.ids.new_id()], 9)) if self._maybe(0.2) else None,
            kind=chance.choice(PAIRS)[0] if self._maybe(0.4) else None,
            key=f"key/{chance.randint(1, 12)}" if self._maybe(0.2) else None,
            key_prefix=chance.choice(("key/1", "key/", "k%", "x")) if self._maybe(0.3) else None,
            statuses=tuple(self._some(list(Status), 3)) if self._maybe(0.4) else (),
            created_from=now - chance.randint(0, 90) * SECOND if self._maybe(0.3) else None,
            created_to=now - chance.randint(0, 60) * SECOND if self._maybe(0.2) else None,
            attributes=(("city", chance.choice(('"Riga"', '"Rome"'))),) if self._maybe(0.2) else (),
        )
        if self._maybe(0.4):
            return self._line("count", (search,))
        before = chance.choice(rows) if rows and self._maybe(0.3) else None
        return self._line("search", (replace(search, before_id=before, limit=chance.choice((1, 7, 100))),))

    def prune(self) -> Line:
        """A supervisor removes what finished a while ago."""
        arguments = (self.chance.choice((0, 60, 3600)) * SECOND, 120 * SECOND, self.chance.choice((1, 5)))
        line = self._line("prune", arguments)
        # A start without a key leaves nothing behind that would know its resend: nobody resends that late.
        self.sent["start"] = [one for one in self.sent["start"] if one.process.key or one.process.id in self.model.rows]
        self.hands = {id: row for id, row in self.hands.items() if id in self.model.rows}
        if line.answer.processes:
            self.probes.add("pruned")
        return line

    def advance(self) -> Line:
        """Time goes by: mostly a little, sometimes past every lease."""
        seconds = self.chance.choice((0.001, 0.5, 3.0, 5.0, 16.0, 61.0))
        self.model.now += round(seconds * SECOND)
        return Line("advance", (seconds,), self.model.now, frozenset())


def _id(record: Start | Commit) -> bytes:
    return record.process.id if isinstance(record, Start) else record.after.id


def _by_id(row: Process) -> bytes:
    return row.id


def _touched(record: Start | Commit | Message) -> list[bytes]:
    """The processes that a record may change."""
    if isinstance(record, Message):
        return [record.process]
    if isinstance(record, Start):
        return [record.process.id]
    children = [start.process.id for start in record.starts]
    return [record.after.id, *children, *(message.process for message in record.sends)]
