"""Evidence: what the store and the ledger say of one process, and what may not be read in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct, json

from perdure.authoring.task import task_of
from perdure.kernel import undo
from perdure.kernel.child import TOLD_FIRST, begun, is_task, queue_kind
from perdure.kernel.event import Event, EventType
from perdure.kernel.failure import Failure
from perdure.kernel.message import LETTERS, LettersWanted, Message, MessageType
from perdure.kernel.names import id_text
from perdure.kernel.process import Process, Status
from perdure.kernel.retry import decode_attempt
from perdure.kernel.run import CONTINUED, opening_of
from perdure.kernel.soundness import Finding
from perdure.limits import SUSPECT_DEATHS
from perdure.store.base import Search, Store
from tests.simulator.ledger import Ledger
from tests.simulator.play import NO_FILE, NOISE, QUEUE
from tests.simulator.program import Chain, Do, Guard, Kin, Line, Program, Rest, Scope, nodes

STEPS = frozenset({"act", "book", "give_back"})
ROWS = 10_000
KINDS = ("play", "edition", queue_kind(QUEUE))


class Evidence(Struct):
    """All that is stored about one process: its row, the events of each run, its messages.

    ``waiting`` are the numbers of the letters that a worker finds in its inbox by their names.
    """

    row: Process
    runs: dict[int, list[Event]]
    messages: list[Message]
    waiting: frozenset[int] = frozenset()

    @property
    def events(self) -> list[Event]:
        """The events of the present run."""
        return self.runs.get(self.row.run, [])

    @property
    def bereft(self) -> bool:
        """Whether it was held while its children, too many for one commit, were told to end before it."""
        held = [e for events in self.runs.values() for e in events if e.type is EventType.HELD]
        return any(TOLD_FIRST.encode() in (event.payload or b"") for event in held)

    def marks(self, why: str) -> dict[str, int]:
        """How often its records say that it was restarted, terminated, held or asked to cancel because of ``why``.

        A run that keeps events of the one before it keeps that it was held, which counts twice then.
        """
        opened = [opening_of(events) for run, events in self.runs.items() if run > 1]
        ended = [e for events in self.runs.values() for e in events if e.type is EventType.TERMINATED]
        told = [json.decode(event.payload or b"{}") for event in ended]
        held = [e for events in self.runs.values() for e in events if e.type is EventType.HELD]
        wishes = [message for message in self.messages if message.type is MessageType.CANCEL]
        return {
            "hold": sum(json.decode(event.payload or b"{}").get("why") == why for event in held),
            "cancel": sum(json.decode(message.sender or b"{}").get("why") == why for message in wishes),
            "restart": sum(one.done == "restarted" and one.sender.get("why") == why for one in opened),
            "terminate": sum(one.get("why") == why and not one.get("asked") for one in told),
        }


async def collected(store: Store) -> dict[bytes, Evidence]:
    """Everything that the store holds, by process."""
    found: dict[bytes, Evidence] = {}
    for row in [row for kind in KINDS for row in await store.search(Search(kind=kind, limit=ROWS))]:
        runs = {run: list(await store.history(row.id, run, limit=ROWS)) for run in range(1, row.run + 1)}
        messages = list(await store.messages([(row.id, 0)]))
        asked = [LettersWanted(row.id, name, 0, row.seen, row.seen, ROWS) for name in {one.name for one in messages}]
        waiting = frozenset(one.number for one in (await store.messages(waiting=asked) if asked else ()))
        found[row.id] = Evidence(row, runs, messages, waiting)
    return found


def program_of(row: Process) -> Program:
    """The program with which a process was started."""
    return json.decode(json.encode(json.decode(row.input)[0]), type=Program)


SHORTAGES = (NO_FILE.encode(), b"can't start new thread")


def faults_by_shortage(everything: Mapping[bytes, Evidence]) -> Iterator[Finding]:
    """A shortage of a worker uses up no attempt and breaks no process."""
    for id, one in everything.items():
        told = [event.payload for events in one.runs.values() for event in events] + [one.row.error]
        for text in SHORTAGES:
            if any(text in payload for payload in told if payload):
                yield Finding("a_shortage_is_no_fault", id, f"its records tell of {text.decode()!r}")


# -- laws of this workload ---------------------------------------------------------------------------------------------


def results_have_effects(evidence: Evidence, ledger: Ledger) -> Iterator[str]:
    """A recorded result of a step was really given by an attempt under its key, and is what that attempt gave."""
    id = id_text(evidence.row.id)
    given = ever_by_hand(evidence)
    for run, events in evidence.runs.items():
        for event in events:
            if event.type is not EventType.STEP_COMPLETED or event.name not in STEPS or event.message is not None:
                continue
            if (event.name, event.place) in given and undo.undoes(event.place) is None:
                continue
            kind = "undone" if undo.undoes(event.place) else "done"
            done = [e for e in ledger.effects if e.kind == kind and fits(e.key, evidence.row, id, event)]
            if not done:
                yield f"run {run}: {event.name}:{event.place} has a result, and nobody has done it"
            elif kind == "done" and event.payload not in {json.encode(effect.label) for effect in done}:
                yield f"run {run}: {event.name}:{event.place} says {event.payload!r}, and {done[0].label} was done"


def fits(key: str, row: Process, id: str, event: Event) -> bool:
    if is_task(row.kind):
        return key == task_of(row.input).key
    return key.startswith(f"{id}/") and key.split("/", 2)[2] == f"{event.name}:{event.place}"


def undone_in_reverse(evidence: Evidence, ledger: Ledger) -> Iterator[str]:
    """What was asked for after another step had ended is undone before it; all owed is undone, then nothing is done.

    A queued step of a chain, which nobody may await, is a process of its own: it is told to end after the undoing.
    """
    if is_task(evidence.row.kind):
        return
    own = list(nodes(program_of(evidence.row).body, children=False))
    if any(isinstance(node, Scope) for node in own):
        return  # a part of it may be undone and the rest go on: these have a law of their own
    done: dict[str, int] = {}
    asked: dict[str, int] = {}
    undone: dict[str, int] = {}
    # A person may answer a step that the code has given up; the process is broken then.
    given = by_hand(evidence.events)
    for place, event in enumerate(evidence.events):
        step = undo.undoes(event.place)
        if event.type is EventType.UNDO_OWED and step:
            asked[step] = place
        elif event.type is EventType.STEP_COMPLETED and step:
            undone[step] = place
        elif event.type in (EventType.STEP_COMPLETED, EventType.STEP_FAILED) and event.name in STEPS:
            done[f"{event.name}:{event.place}"] = place
            queued = event.message is not None
            free = any(isinstance(node, Guard) or (queued and isinstance(node, Chain)) for node in own)
            if undone and not free and (event.name, event.place) not in given:
                yield f"{event.name}:{event.place} was accepted after the undoing had begun"
    for step, place in undone.items():
        for other, since in asked.items():
            if done.get(step, 1 << 30) < since and undone.get(other, 1 << 30) > place:
                yield f"{step} was undone before {other}, which came after it"


def all_owed_is_undone(evidence: Evidence, ledger: Ledger) -> Iterator[str]:
    """Who failed by its own error, or has cancelled, has nothing left to undo."""
    last = evidence.events[-1].type if evidence.events else None
    if last in (EventType.FAILED, EventType.CANCELLED):
        left = undo.owed(evidence.events)
        if left:
            yield f"it is {evidence.row.status} and has not undone {', '.join(left)}"


def attempts_are_counted(evidence: Evidence, ledger: Ledger) -> Iterator[str]:
    """Failed attempts are recorded with rising numbers, each once."""
    for run, events in evidence.runs.items():
        slots: dict[tuple[str, str], list[int]] = {}
        for event in events:
            if event.type is EventType.ATTEMPT_FAILED:
                number = json.decode(event.payload or b"{}").get("attempt", 1)
                slots.setdefault((event.name, event.place), []).append(number)
            elif event.type is EventType.RUN_OPENED:
                slots.clear()
        for slot, numbers in slots.items():
            if any(later <= sooner for sooner, later in pairwise(numbers)) and undo.undoes(slot[1]) is None:
                yield f"run {run}: the failed attempts of {':'.join(slot)} are numbered {numbers}"


def retries_wait(evidence: Evidence, ledger: Ledger) -> Iterator[str]:
    """Between a failed attempt and the next one there is a wait."""
    for event in evidence.events:
        if event.type is EventType.ATTEMPT_FAILED and event.payload is not None:
            wait = decode_attempt(event.payload).retry_at - event.at
            if wait <= 0:
                yield f"{event.name}:{event.place} failed, and is to be tried again after {wait} microseconds"


def by_hand(events: Sequence[Event]) -> set[tuple[str, str]]:
    """The steps of a run that a person has answered."""
    return {(e.name, e.place) for e in events if e.type in (EventType.SET_BY_HAND, EventType.SKIPPED)}


def ever_by_hand(evidence: Evidence) -> set[tuple[str, str]]:
    """The same of all runs: a later one may have kept what was answered."""
    return {slot for events in evidence.runs.values() for slot in by_hand(events)}


def deaths_are_counted(evidence: Evidence, ledger: Ledger) -> Iterator[str]:
    """Each death with evidence counts, those of suspects apart; what goes on clears the count (rule 13)."""
    own = list(nodes(program_of(evidence.row).body)) if not is_task(evidence.row.kind) else []
    plain = bool(own) and all(isinstance(n, Line | Rest) or (isinstance(n, Do) and not n.undo) for n in own)
    for run, events in evidence.runs.items():
        answered, hand = True, by_hand(events)
        for event in events:
            if event.type is EventType.STEP_COMPLETED:
                answered = answered or (event.name, event.place) not in hand  # a person's answer clears no one
            elif event.type is EventType.REVIVED and b'"died":true' in (event.payload or b""):
                told = json.decode(event.payload or b"{}")
                deaths, alone = told["deaths"], told["alone_deaths"]
                if told.get("waited"):
                    continue
                if not deaths + alone:
                    yield f"run {run}: its worker died, and event {event.number} counts no death"
                if alone and deaths < SUSPECT_DEATHS:
                    yield f"run {run}: {deaths} deaths made it no suspect, and {alone} are counted as if it were one"
                if plain and answered and deaths + alone > 1:
                    yield f"run {run}: a step has ended since the death before, and {deaths} + {alone} are counted"
                answered = False


def deaths_are_forgotten(evidence: Evidence, ledger: Ledger) -> Iterator[str]:
    """Whoever has come to its end by itself has ended all that was under way when its worker died (rule 13)."""
    row = evidence.row
    if row.status is Status.COMPLETED and (row.deaths or row.alone_deaths):
        yield f"it has completed, and {row.deaths} + {row.alone_deaths} deaths are still counted"


def all_was_heard(evidence: Evidence, ledger: Ledger) -> Iterator[str]:
    """Whoever ends by itself has heard whatever was sent before (rule 4)."""
    row, last = evidence.row, evidence.events[-1].type if evidence.events else None
    if last in (EventType.COMPLETED, EventType.FAILED, EventType.CANCELLED):
        for message in evidence.messages:
            if message.number > row.seen and (message.at or row.changed_at) < row.changed_at:
                yield f"message {message.number} was sent before it ended, and it has heard {row.seen}"


def times_run_forward(evidence: Evidence, ledger: Ledger) -> Iterator[str]:
    """The store's time never runs back, whatever the machine's does (rule 15).

    A start is dated by its worker, who carries the time on: it may be ahead of a store whose clock was set back.
    """
    times = [message.at for message in evidence.messages]
    if times != sorted(times):
        yield f"its messages came at {times}"


def what_is_left_is_told(evidence: Evidence, ledger: Ledger) -> Iterator[str]:
    """Who was ended by force says what should have been undone (rule 23)."""
    last = evidence.events[-1].type if evidence.events else None
    if last in (EventType.TERMINATED, EventType.EXPIRED):
        owed, told = undo.listed(undo.owed(evidence.events)), Failure.shown(evidence.row.error or b"{}").owed
        if owed != told:
            yield f"it was ended by force and says that {told} was not undone; it was {owed}"


def letters_wait(evidence: Evidence, ledger: Ledger) -> Iterator[str]:
    """A signal or a call is recorded once it is received; until then it is found in the inbox by its name."""
    seen = evidence.row.seen
    letters = [message for message in evidence.messages if message.type in LETTERS]
    left = {letter.number for letter in letters if letter.consumed_by is None and letter.number <= seen}
    if left != evidence.waiting:
        yield f"of its letters {sorted(left)} are left, and {sorted(evidence.waiting)} are found in its inbox"
    for letter in letters:
        if letter.name == NOISE and letter.consumed_by is not None:
            yield f"message {letter.number} is recorded as received, and no code receives it"


LAWS = (
    results_have_effects, undone_in_reverse, all_owed_is_undone, attempts_are_counted, retries_wait,
    deaths_are_counted, deaths_are_forgotten, all_was_heard, what_is_left_is_told,
    times_run_forward, letters_wait,
)  # fmt: skip
"""What must hold of each process by itself."""


# -- between processes -------------------------------------------------------------------------------------------------


def families(everything: Mapping[bytes, Evidence]) -> Iterator[Finding]:
    """Children are those that their parents' histories name, each once; they end before a parent that was cancelled."""
    named: Counter[bytes] = Counter()
    for evidence in everything.values():
        row = evidence.row
        started = {begun(e).id_bytes: e for run in evidence.runs.values() for e in run if _starts(e)}
        named.update(started.keys())
        for id, event in started.items():
            kin = everything.get(id)
            if kin is None:
                yield Finding("children_are_kept", row.id, f"its child at {event.name}:{event.place} is not there")
            elif kin.row.parent != row.id:
                yield Finding("children_are_kept", row.id, f"its child {id_text(id)} has another parent")
            elif _outlives(evidence, kin, event):
                text = f"it was cancelled while its child {id_text(id)} went on: {kin.row.status}"
                yield Finding("children_end_first", row.id, text)
    for id, evidence in everything.items():
        if evidence.row.parent is not None and named[id] != 1:
            text = f"it is in {named[id]} histories of parents"
            yield Finding("children_are_kept", id, text)


def _starts(event: Event) -> bool:
    return event.type is EventType.CHILD_STARTED


def _outlives(parent: Evidence, kin: Evidence, event: Event) -> bool:
    """Whether a child went on after its parent had cancelled by itself, though it was awaited then."""
    if parent.row.run > 1 or kin.row.run > 1 or not parent.events or parent.events[-1].type is not EventType.CANCELLED:
        return False
    if is_task(kin.row.kind) or begun(event).abandoned:
        return False
    own = nodes(program_of(parent.row).body, children=False)
    if program_of(kin.row).body in [n.part for n in own if isinstance(n, Kin) and not n.awaited]:
        return False
    return not kin.row.final or kin.row.changed_at > parent.row.changed_at


def ends_are_told(everything: Mapping[bytes, Evidence]) -> Iterator[Finding]:
    """The children of a process that has ended, or was begun anew, are asked to end, or ended with it (rule 23)."""
    for evidence in everything.values():
        for run, events in evidence.runs.items():
            after = evidence.runs.get(run + 1)
            ended = bool(events) and events[-1].type in ENDS if after is None else opening_of(after).done in BEGUN_ANEW
            if not ended:
                continue
            heard = {event.message for event in events if event.message is not None}
            answered = {message.id for message in evidence.messages if message.number in heard}
            for event in filter(_starts, events):
                kin = everything.get(begun(event).id_bytes)
                if kin is None or begun(event).abandoned or kin.row.id in answered:
                    continue
                if not orders(kin.messages, terminated=begun(event).terminated):
                    text = f"it was not told to end, and run {run} of its parent is over"
                    yield Finding("ends_are_told", kin.row.id, text)


ENDS = frozenset(
    {EventType.COMPLETED, EventType.FAILED, EventType.CANCELLED, EventType.TERMINATED, EventType.EXPIRED}
)  # fmt: skip
BEGUN_ANEW = ("restarted", CONTINUED)


def orders(messages: Sequence[Message], *, terminated: bool) -> bool:
    """Whether a child was told to end; one that is to be ``terminated`` was not only asked to."""
    told = {message.type for message in messages}
    return MessageType.TERMINATE in told or (MessageType.CANCEL in told and not terminated)


def done_for_somebody(everything: Mapping[bytes, Evidence], ledger: Ledger) -> Iterator[Finding]:
    """Whatever was done, was done for a process that is stored, with what other steps have answered, or a person.

    No attempt sleeps over its time limit (rule 14).
    """
    ids = {id_text(id): id for id in everything}
    for effect in ledger.effects:
        if effect.process not in ids:
            yield Finding("done_for_somebody", b"", f"{effect.label} was done for {effect.process}, which is not there")
        elif effect.kind == "astray" and not _answered_by_hand(everything, ids[effect.process]):
            yield Finding("what_is_given_was_answered", ids[effect.process], effect.label)
        elif effect.kind == "overslept":
            yield Finding("nothing_oversleeps", ids[effect.process], f"nobody has stopped {effect.label}")


def _answered_by_hand(everything: Mapping[bytes, Evidence], id: bytes) -> bool:
    """Whether a person has answered a step of that process, or of the one whose queued step it is."""
    asker = everything.get(everything[id].row.parent or id)
    return asker is not None and any(by_hand(events) for events in asker.runs.values())


def exactly_done(evidence: Evidence, ledger: Ledger) -> Iterator[str]:
    """Without faults: of what a completed process has, each attempt was made once, and no other."""
    id = id_text(evidence.row.id)
    began = Counter((e.key, e.attempt) for e in ledger.effects if e.kind == "began" and e.process == id)
    for (key, attempt), times in began.items():
        if times > 1:
            yield f"attempt {attempt} of {key} was made {times} times"
    if evidence.row.status is not Status.COMPLETED or is_task(evidence.row.kind):
        return
    done = Counter(e.label for e in ledger.effects if e.kind == "done" and e.key.startswith(f"{id}/"))
    for label, times in done.items():
        if times > program_of(evidence.row).rounds:
            yield f"{label} was done {times} times"


def findings(everything: Mapping[bytes, Evidence], ledger: Ledger, *, calm: bool) -> Sequence[Finding]:
    """All that is wrong in the records of a history."""
    laws = (*LAWS, exactly_done) if calm else LAWS
    found = [
        Finding(law.__name__, id, text)
        for id, evidence in everything.items()
        for law in laws
        for text in law(evidence, ledger)
    ]
    return [*found, *families(everything), *ends_are_told(everything), *done_for_somebody(everything, ledger)]
