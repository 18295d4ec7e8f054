"""A revival: what was under way when a worker was lost goes on at once, or later, or not before a person says so.

Only steps for which a state of a flow, or a policy, sets ``revival_delay`` do not go on at once. A process that is
revived again and again, and records nothing in between, is stopped: it would use up the workers for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from perdure import limits
from perdure.clock import microseconds
from perdure.kernel.event import Event, EventType
from perdure.kernel.quarantine import revivals

if TYPE_CHECKING:
    from perdure.runtime.holder import Holder
    from perdure.runtime.instance import Instance
    from perdure.runtime.replay import Replay


class Interrupted(Exception):
    """A step was under way when its worker was lost, and its revival is switched off."""


class RevivalLoop(Exception):
    """A process was revived again and again, and has recorded nothing in between."""


def goes_round(holder: Holder, instance: Instance, history: Sequence[Event]) -> bool:
    """Whether a process that was claimed goes round in revivals, before its code runs. True: it is parked as broken."""
    many = revivals(history, holder.parts.time.now())
    if many < limits.REVIVAL_LOOP_EVENTS:
        return False
    text = (
        f"it was revived {many} times within {limits.REVIVAL_LOOP_SECONDS / 60:.0f} minutes, and has recorded nothing "
        "in between: whatever runs first ends, hangs or cuts off its worker. `perdure history` shows which workers "
        "they were. Mend the cause, then retry the process"
    )
    holder.park(instance, RevivalLoop(text))
    return True


def put_off(holder: Holder, instance: Instance, replay: Replay) -> bool:
    """Let steps of a process that was just replayed wait for their revival. True: it is parked as broken.

    Only those wait that were under way when the worker was lost: neither steps that were asked for later, nor those
    that waited for another attempt, or have failed since. The delay counts from the loss, which is in the history: a
    step that waits for it already, and whose process is claimed again meanwhile, does not wait anew.
    """
    now = holder.parts.time.now()
    for ask in list(instance.steps.asked):
        delay = ask.step.revival_delay
        if delay is None or (lost_at := replay.interrupted(ask)) is None:
            continue
        if delay == 0.0:
            text = (
                f"step {ask.name}:{ask.place} was under way when its worker was lost, and its revival is off "
                "(revival_delay=0). Look whether it was done, then set its result or retry the process"
            )
            holder.park(instance, Interrupted(text))
            return True
        due = lost_at + microseconds(delay)
        if due > now:
            holder.agent.wait(instance, ask, due, (due - now) / 1_000_000)
    return False


def announce(instance: Instance, history: Sequence[Event], now: int) -> None:
    """Write which steps of a suspect begin, before they do: if its worker dies again, it is known which step ran."""
    lost = next((event.number for event in reversed(history) if event.type is EventType.REVIVED), 0)
    begun = [event for event in history if event.type is EventType.ATTEMPT_BEGUN and event.number > lost]
    told = {(event.name, event.place) for event in begun}
    for ask in instance.steps.asked:
        if not ask.step.at_most_once and ask.slot not in told:
            instance.note(EventType.ATTEMPT_BEGUN, now, None, name=ask.name, place=ask.place)
