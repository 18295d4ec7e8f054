"""Publishing: what a process shows of itself goes into its history and its row, each value once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import json
from msgspec.structs import replace

from perdure.authoring.publication import publications_of
from perdure.kernel import attributes
from perdure.kernel.event import EventType

if TYPE_CHECKING:
    from perdure.kernel.commit import Commit
    from perdure.kernel.event import Event
    from perdure.kernel.process import Process
    from perdure.runtime.activation import Activation


def recall(activation: Activation, event: Event) -> None:
    """A replay has come by a published value: the code will show it again, and it is not to be written again."""
    publications_of(activation.loop).recorded.add((event.name, event.place))


def note(activation: Activation) -> None:
    """Write down what the code has just shown, but for what the history holds already."""
    publications = activation.loop.publications
    if publications is None:
        return
    for one in publications.fresh:
        if (one.name, one.place) not in publications.recorded:
            activation.note(EventType.PUBLISHED, activation.at, one.payload, name=one.name, place=one.place)
    publications.fresh.clear()
    publications.recorded.clear()
    if publications.untold:
        known = attributes.merged(activation.process.attributes, publications.told)
        news = attributes.missing(known, publications.untold)
        if news:
            attributes.merged(known, news)  # too many for the row: a person must see it before anything is written
            activation.note(EventType.ATTRIBUTES_SET, activation.at, json.encode(news))
        publications.told |= publications.untold
        publications.untold = {}


def shown(activation: Activation, process: Process) -> Process:
    """The row with the attributes that the code has set; raises PayloadTooLarge if they are too many by now."""
    publications = activation.loop.publications
    if publications is None or not publications.attributes:
        return process
    if not attributes.missing(process.attributes, publications.attributes):
        return process
    return replace(process, attributes=attributes.merged(process.attributes, publications.attributes))


def told(commit: Commit, before: Process) -> Commit:
    """The commit, marked with what of it others wait for."""
    published = any(event.type is EventType.PUBLISHED for event in commit.events)
    return replace(commit, attributes_set=commit.after.attributes != before.attributes, published=published)
