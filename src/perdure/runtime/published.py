"""What the code of a process shows of itself goes into its history, each once: patches, published values, attributes.

All of it is written with the turn in which the code has shown it, before anything that follows from it is released.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct, json
from msgspec.structs import replace

from perdure.kernel.event import SHOWN, EventType
from perdure.kernel.patch import TakenPatch
from perdure.kernel.process import merged, missing
from perdure.turns.publication import publications_of

if TYPE_CHECKING:
    from perdure.kernel.commit import Commit
    from perdure.kernel.event import Event
    from perdure.kernel.process import Process
    from perdure.runtime.instance import Instance
    from perdure.turns.loop import Ask, TurnLoop


def note_of_step(instance: Instance, ask: Ask[Any], name: str, raw: bytes, now: int) -> bool:
    """Write down a value that a step has just published; false if its process was let go."""
    if instance.gone:
        return False
    publications_of(instance.loop)
    instance.note(EventType.PUBLISHED, max(now, instance.at), raw, name=name, place=f"{ask.name}:{ask.place}")
    return True


def note_patches(instance: Instance) -> None:
    """Write down the patches just taken."""
    patches = instance.loop.patches
    if patches is None:
        return
    for name in patches.take_fresh():
        instance.note(EventType.PATCHED, instance.at, TakenPatch(instance.turns).encode(), name=name)


def note_timers(instance: Instance) -> None:
    """Write down the timers of a machine that its methods have just replaced or cancelled."""
    machine = instance.loop.machine
    if machine is not None:
        for change in machine.changes:
            instance.note(EventType.TIMER_CHANGED, instance.at, change.encode(), name=change.method)
        machine.changes.clear()


def note_looks(instance: Instance) -> None:
    """Write down the looks for letters that the code has just cut short: in a replay it looks there too.

    Else a receiver without time would time out in this turn of the replay, and perhaps go another way.
    """
    loop = instance.loop
    for place in loop.looks:
        instance.note(EventType.LOOK_CUT_SHORT, instance.at, None, place=place)
    loop.looks = ()


def note(instance: Instance) -> None:
    """Write down the values and attributes that the code has just shown, but for what the history holds already."""
    publications = instance.loop.publications
    if publications is None:
        return
    for one in publications.take_fresh():
        instance.note(one.type, instance.at, one.payload, name=one.name, place=one.place, digest=one.digest)
    if publications.untold:
        known = merged(instance.process.attributes, publications.told)
        news = missing(known, publications.take_untold())
        if news:
            merged(known, news)  # raises if they are too many for the row: before anything is written
            instance.note(EventType.ATTRIBUTES_SET, instance.at, json.encode(news))


class _Edited(Struct):
    attributes: dict[str, Any]


def edited(loop: TurnLoop, event: Event) -> None:
    """A person has edited attributes: what the code had set before counts no more, until it sets them again."""
    if loop.publications is not None:
        loop.publications.forget(json.decode(event.payload or b"", type=_Edited).attributes)


def unwritten(instance: Instance) -> bool:
    """Whether values that the code or a step has published are not known to be written."""
    commit = instance.commit
    pending = instance.events if commit is None else (*commit.events, *instance.events)
    return any(event.type is EventType.PUBLISHED for event in pending)


def shown(instance: Instance, process: Process) -> Process:
    """The row with the attributes that the code has set; raises PayloadTooLarge if they are too many by now.

    If it is due, also with what steps have reported: the values that they have published before are in this commit.
    """
    steps, publications = instance.steps, instance.loop.publications
    if steps.progress_due:
        process = replace(process, progress=steps.progress())
    if publications is None or not publications.attributes:
        return process
    if not missing(process.attributes, publications.attributes):
        return process
    return replace(process, attributes=merged(process.attributes, publications.attributes))


def told(commit: Commit, before: Process) -> Commit:
    """The commit, marked if it changes attributes or publishes values: others may wait for these."""
    published = any(event.type in SHOWN for event in commit.events)
    return replace(commit, attributes_set=commit.after.attributes != before.attributes, published=published)
