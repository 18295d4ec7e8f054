"""Proposals: commands that a person can give about a cause, and what each would do, tried without writing."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from perdure.client import decision
from perdure.client.decision import Decision
from perdure.client.explaining.causes import FoundCause
from perdure.client.explaining.diagnosis import Diagnosis
from perdure.client.explaining.evidence import Evidence
from perdure.errors import PerdureError
from perdure.kernel.child import ORDERS, QUEUE_MARK, is_task
from perdure.kernel.commit import Commit
from perdure.kernel.diagnosis import NextMover, awaited_signals
from perdure.kernel.hosting import start_command
from perdure.kernel.names import id_text
from perdure.kernel.process import Process, Status
from perdure.kernel.transition import Sender


@dataclass(frozen=True, slots=True)
class Proposal:
    """A ``command`` to copy, what it ``does``, and what it would do now (``preview``), tried without writing.

    ``verb`` is the command's name if it is one to this process (``retry``, ``resume`` …); ``accepted`` is None if it
    was not tried. A command that would be refused is listed with the reason: it may be the one that comes to mind.
    """

    command: str
    does: str
    verb: str = ""
    preview: str = ""
    accepted: bool | None = None


_TRIED: Mapping[str, Callable[[Sender], Decision]] = {
    "retry": decision.retry,
    "resume": decision.resume,
    "restart": decision.restart,
    "terminate": decision.terminate,
}


def proposals(evidence: Evidence, reason: FoundCause) -> list[Proposal]:
    """What a person can do about this cause, the best first; commands to the process itself are tried."""
    return [_tried(evidence, one) for one in _of_cause(evidence, reason)]


def _tried(evidence: Evidence, proposal: Proposal) -> Proposal:
    if proposal.verb not in _TRIED:
        return proposal
    return _with_effect(evidence, proposal, _TRIED[proposal.verb](Sender()))


def _with_effect(evidence: Evidence, proposal: Proposal, command: Decision) -> Proposal:
    try:
        commit = command.decide(evidence.row, evidence.events, evidence.now)
    except PerdureError as why:
        return replace(proposal, preview=f"it would be refused: {why}", accepted=False)
    return replace(proposal, preview=effect(evidence.row, commit), accepted=True)


def effect(row: Process, commit: Commit) -> str:
    """What a commit would change, for people."""
    after = commit.after
    if after.run > row.run:
        kept = max(after.events - 1, 0)
        told = f"it would go on in run {after.run}, and keep {kept:,} of its {row.events:,} events"
    elif after.status is Status.RUNNING:
        told = f"it would go on in run {after.run} where it is, with all of its {row.events:,} events"
    else:
        told = f"it would be {after.status}"
    ends = sum(message.type in ORDERS for message in commit.sends)
    if ends:
        told += f"; {ends:,} of its children would be asked to end"
    if len(commit.sends) > ends:
        told += f"; {len(commit.sends) - ends:,} other processes would be told"
    return told


# -- what helps against which cause ------------------------------------------------------------------------------------


def _of_cause(evidence: Evidence, reason: FoundCause) -> Iterator[Proposal]:
    row = evidence.row
    to = _Commands(id_text(row.id))
    match reason.cause:
        case Diagnosis.NO_HOST_OF_KIND | Diagnosis.QUEUE_NOT_POLLED:
            yield Proposal(start_command(row.kind, row.code), "starts a worker that takes it, if MODULE has its code")
        case Diagnosis.NO_HOST_OF_VERSION:
            yield Proposal(start_command(row.kind, row.code), "starts a worker, if MODULE still has that version")
            yield from _other_versions(evidence, to)
        case Diagnosis.HOSTS_BUSY:
            yield Proposal(f"{start_command(row.kind, row.code)} --workers 2", "starts two more workers")
            yield Proposal("perdure workers", "shows what each worker holds")
        case Diagnosis.QUEUE_BLOCKED:
            queue = shlex.quote(row.kind.removeprefix(QUEUE_MARK))
            yield Proposal(f"perdure queue unblock {queue}", "lets the steps of the queue begin again")
        case Diagnosis.QUEUE_FULL:
            yield Proposal("perdure queue ls", "shows the limits of the queue and what runs in it")
        case Diagnosis.KIND_FULL:
            yield Proposal("perdure kind ls", "shows the limits of the kind, how many run and how many wait")
        case Diagnosis.RECOVERY_PAUSED:
            yield Proposal("perdure recovery resume", "lets other workers take over what is lost")
        case Diagnosis.DEPENDENCY_DOWN:
            yield from _dependency(evidence, to)
        case Diagnosis.CRASHES_ITS_WORKER | Diagnosis.HANGS_ITS_WORKER | Diagnosis.HISTORY_MISFIT:
            yield from to.mend(row, "after its code was corrected, lets it go on")
        case Diagnosis.PAYLOAD_UNREADABLE:
            yield from to.mend(row, "once the worker has the codec and its keys (PERDURE_SEAL), lets it go on")
        case Diagnosis.RETRIES_SPENT:
            yield from to.mend(row, "lets it go on from its last good event, with fresh attempts")
        case Diagnosis.OVER_DEADLINE if row.final:
            yield to.verb("restart", "begins it anew, without a deadline; `perdure set-deadline` gives it another one")
        case Diagnosis.OVER_DEADLINE:
            yield Proposal(start_command(row.kind), "starts a worker, which ends what is over its deadline")
            yield to.verb("terminate", "ends it now")
        case Diagnosis.HELD | Diagnosis.SET_BACK:
            yield to.verb("resume", "lets it go on where it was")
            yield to.verb("terminate", "ends it")
        case Diagnosis.RECORD_UNSOUND | Diagnosis.NEWER_RECORD | Diagnosis.WAITS_FOR_NOTHING | Diagnosis.NO_PROGRESS:
            yield Proposal(f"perdure history {to.id} --full", "shows its events whole")
            yield to.verb("restart", "begins it anew")
            yield to.verb("terminate", "ends it")
        case Diagnosis.CLOCK_JUMPED:
            yield Proposal("perdure clock mend", "lets the two clocks come together faster")
        case Diagnosis.WAITS_FOR_MESSAGE if not is_task(row.kind):
            for name in awaited_signals(row)[:3]:
                yield Proposal(f"perdure signal {to.id} {shlex.quote(name)}", "sends what it waits for")
        case Diagnosis.WAITS_FOR_CHILD:
            yield Proposal(f"perdure tree {to.id}", "shows its children, and theirs")


def _other_versions(evidence: Evidence, to: _Commands) -> Iterator[Proposal]:
    for other in sorted(evidence.hosting.others)[:3]:
        words = f"perdure move {to.id} --version {shlex.quote(other)}"
        moved = Proposal(words, "lets it go on with that version, if its history fits", "move")
        yield _with_effect(evidence, moved, decision.move(Sender(), other, None))


def _dependency(evidence: Evidence, to: _Commands) -> Iterator[Proposal]:
    if evidence.mover.who is NextMover.OUTAGE:
        yield Proposal("perdure outage ls", "shows which kinds are held, since when and why")
        kind = shlex.quote(evidence.row.kind)
        yield Proposal(f"perdure outage end {kind}", "lets its processes go, few at first, if what they need is back")
    elif (circuit := evidence.queues.barred(evidence.row)) is not None:
        verb = "reset" if circuit.forced else "close"
        yield Proposal("perdure breaker ls", "shows all breakers")
        yield Proposal(
            f"perdure breaker {verb} {shlex.quote(circuit.name)}", "lets attempts be made again, if it is back"
        )
    elif evidence.cause is not None:
        query = shlex.quote(f"fingerprint = {evidence.cause.fingerprint}")
        yield Proposal(f"perdure operation start retry {query} --dry-run", "shows what a retry of all of them would do")
        yield from to.mend(evidence.row, "tries this one, to see whether it is back")


@dataclass(frozen=True)
class _Commands:
    """The commands to the process with that id."""

    id: str

    def verb(self, verb: str, does: str) -> Proposal:
        return Proposal(f"perdure {verb} {self.id}", does, verb)

    def mend(self, row: Process, does: str) -> Iterator[Proposal]:
        if row.status in (Status.BROKEN, Status.FAILED):
            yield self.verb("retry", does)
        if not row.final:
            yield self.verb("terminate", "ends it")
