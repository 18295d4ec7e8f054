"""A decision: what a command asks the kernel about a process. One handle carries it out, or an operation for many.

Each function gives the decision of one command, which is the same for every process: what is particular to a process
comes with its row and its history.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Raw, Struct

from perdure import limits
from perdure.authoring.library import with_library_kind
from perdure.authoring.start import NamedWorkflow
from perdure.client import validation
from perdure.client.deadline import SetDeadline
from perdure.clock import microseconds
from perdure.kernel import adjust, command, manual_result, run, transition
from perdure.kernel import repair as kernel_repair
from perdure.kernel.checkpoint import is_checkpoint, parted
from perdure.kernel.commit import Commit
from perdure.kernel.edit import fields_of, with_attributes, with_fields, with_input
from perdure.kernel.event import Event
from perdure.kernel.integrity import refuse_newer
from perdure.kernel.inverse import taken_back
from perdure.kernel.payload import encode
from perdure.kernel.process import Changes, Process, Status
from perdure.kernel.stored import first_trouble, why_undecodable
from perdure.kernel.transition import Sender
from perdure.kernel.worker import Pair

if TYPE_CHECKING:
    from perdure.authoring.registry import Registry

Arguments = tuple[Sequence[Any], Mapping[str, Any]]
"""Arguments by place and by name."""
Decide = Callable[[Process, Sequence[Event], int], Commit]
"""The kernel's decision from the row, the history of its run, and the store's time."""


class End(Protocol):
    """A function of the kernel that ends a process, whatever it does."""

    def __call__(self, process: Process, sender: Sender, history: Sequence[Event] = (), *, now: int) -> Commit:
        """The commit that ends it."""


def always(row: Process) -> bool:
    """The history is read."""
    return True


def never(row: Process) -> bool:
    """The row decides alone: no history is read, and the decision gets an empty one."""
    return False


class Decision(Struct, frozen=True):
    """``decide`` gives the commit; of each row ``reads`` says whether the history of its run is needed for that.

    ``unrecorded`` is asked instead if the database refuses the commit: it appends no event, and gets all events that
    there are, or none if the database refuses what it makes of these. ``patient`` says that NothingOpen may be wrong
    for some seconds, as long as a worker holds the process.
    """

    decide: Decide
    reads: Callable[[Process], bool] = always
    unrecorded: Decide | None = None
    patient: bool = False


def hold(sender: Sender, random: Callable[[], float]) -> Decision:
    """Pause it; ``random`` spreads the reminders of many."""

    def held(row: Process, history: Sequence[Event], now: int) -> Commit:
        return command.held(row, sender, now=now, idle_at=_reminded(now, random))

    return Decision(held, never)


def _reminded(now: int, random: Callable[[], float]) -> int:
    spread = 1 + limits.IDLE_CHECK_JITTER * (2 * random() - 1)
    return now + microseconds(limits.IDLE_CHECK_SECONDS * spread)


def resume(sender: Sender) -> Decision:
    """Let it go on where it was."""
    return Decision(lambda row, history, now: command.resumed(row, sender, now=now), never)


def end(by: End, sender: Sender) -> Decision:
    """End it by force. If nothing can be appended to its history, it ends without an event."""

    def unrecorded(row: Process, history: Sequence[Event], now: int) -> Commit:
        return transition.unrecorded(by(row, sender, history, now=now))

    return Decision(lambda row, history, now: by(row, sender, history, now=now), always, unrecorded)


def terminate(sender: Sender) -> Decision:
    """End it at once, as cancelled."""
    return end(transition.terminated, sender)


def fail(sender: Sender) -> Decision:
    """End it at once, as failed."""
    return end(transition.given_up, sender)


def retry(sender: Sender) -> Decision:
    """Let it go on from its last good event. Only a new run copies what is recorded, and so reads it."""

    def retried(row: Process, history: Sequence[Event], now: int) -> Commit:
        if row.status is Status.FAILED or (_is_open(row.state) and is_checkpoint(row.state)):
            refuse_unreadable(row, history)
        return run.retried(row, history, sender, now=now)

    return Decision(retried, _may_open_a_run)


def _may_open_a_run(row: Process) -> bool:
    return row.status is Status.FAILED or not _is_open(row.state) or is_checkpoint(row.state)


def _is_open(state: bytes | None) -> bool:
    return why_undecodable(state) is None


def restart(sender: Sender) -> Decision:
    """Begin again from the stored input."""
    return Decision(lambda row, history, now: run.restarted(row, history, sender, now=now))


def restart_from(sender: Sender, step: str) -> Decision:
    """Run a step again, and all that followed it."""

    def restarted(row: Process, history: Sequence[Event], now: int) -> Commit:
        refuse_unreadable(row, history)
        return run.restarted_from(row, history, step, sender, now=now)

    return Decision(restarted)


def set_result(sender: Sender, step: str, value: object, *, skipped: bool = False) -> Decision:
    """Give a step its result by hand. Raises PayloadError for a value that cannot be stored."""
    raw = encode(value, what=f"the result of step {step!r}")

    def given(row: Process, history: Sequence[Event], now: int) -> Commit:
        refuse_unreadable(row, history)
        return manual_result.set_by_hand(row, history, step, raw, sender, now=now, skipped=skipped)

    return Decision(given, patient=True)


skip = partial(set_result, value=None, skipped=True)
"""Skip a step: its result becomes None."""


def repair(sender: Sender, method: str, raw: bytes, key: str | None = None) -> Decision:
    """Let a broken machine go on with a method made for that; ``raw`` is the call's payload."""

    def repaired(row: Process, history: Sequence[Event], now: int) -> Commit:
        refuse_unreadable(row, history)
        return kernel_repair.repaired(row, history, method, raw, sender, key=key, now=now)

    return Decision(repaired)


def edit_input(sender: Sender, registry: Registry, arguments: Arguments, *, restart: bool = False) -> Decision:
    """Give it other arguments, by place and by name; they are checked if its workflow is in the registry."""

    def edited(row: Process, history: Sequence[Event], now: int) -> Commit:
        known = with_library_kind(registry, row.kind).versions.get((row.kind, row.code))
        raw = validation.input(known or NamedWorkflow(row.kind, version=row.code), *arguments)
        return with_input(row, history, raw, sender, now=now, restart=restart)

    return Decision(edited)


def edit_fields(sender: Sender, registry: Registry, changes: dict[str, Raw]) -> Decision:
    """Give fields of a machine other values; they are checked if its class is in the registry."""

    def edited(row: Process, history: Sequence[Event], now: int) -> Commit:
        fields = fields_of(row)
        known = with_library_kind(registry, row.kind).versions.get((row.kind, row.code))
        if known is not None and known.machine is not None:
            known.machine.check_edit(fields, parted(row.state or b"")[0].form, changes)
        else:
            validation.known_fields(changes, fields)
        return with_fields(row, changes, sender, now=now)

    return Decision(edited, never)


def edit_attributes(sender: Sender, changes: Changes) -> Decision:
    """Give attributes other values. The history of one that a worker has in hand says what it could not begin again."""
    return Decision(
        lambda row, history, now: with_attributes(row, history, changes, sender, now=now),
        lambda row: row.owner is not None,
    )


def move(sender: Sender, version: str, hosted: Collection[Pair] | None) -> Decision:
    """Move it to another version of its code; ``hosted`` are what live workers host, None if it counts not."""
    return Decision(lambda row, history, now: adjust.moved(row, version, sender, now=now, hosted=hosted), never)


def set_priority(sender: Sender, priority: int) -> Decision:
    """Give it another priority."""
    return Decision(lambda row, history, now: adjust.with_priority(row, priority, sender, now=now), never)


def set_deadline(sender: Sender, deadline: SetDeadline) -> Decision:
    """Give it another deadline, or none."""
    return Decision(lambda row, history, now: adjust.with_deadline(row, deadline(now), sender, now=now), never)


def take_back(
    verb: str,
    origin: str,
    sender: Sender,
    random: Callable[[], float],
    former_input: bytes = b"",
    hosted: Collection[Pair] | None = None,
) -> Decision:
    """Take back what a command of that origin has done, as far as it has an inverse."""

    def decided(row: Process, history: Sequence[Event], now: int) -> Commit:
        idle_at = _reminded(now, random)
        return taken_back(
            row, history, verb, origin, sender, now=now, idle_at=idle_at, input=former_input, hosted=hosted
        )

    return Decision(decided)


def refuse_unreadable(row: Process, history: Sequence[Event]) -> None:
    """Raise if a new run would copy a payload that cannot be opened here, or lack an event that is not known here."""
    refuse_newer(row, history)
    if trouble := first_trouble(event.payload for event in history):
        raise trouble
