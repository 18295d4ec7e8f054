"""Publishing: what a process shows of itself, or answers, goes into its history and its row, each value once."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING

from msgspec import json
from msgspec.structs import replace

from perdure import limits
from perdure.authoring.publication import publications_of
from perdure.authoring.task import QueueWork
from perdure.errors import DefinitionError, PayloadTooLarge
from perdure.kernel import attributes
from perdure.kernel.event import SHOWN, EventType

if TYPE_CHECKING:
    from perdure.kernel.commit import Commit
    from perdure.kernel.event import Event
    from perdure.kernel.process import Process
    from perdure.runtime.activation import Activation
    from perdure.runtime.execution import Execution


def recall(activation: Activation, event: Event) -> None:
    """A replay has come by a published value or an answer: the code will show it again; it is written already."""
    publications_of(activation.loop).recorded.add((event.name, event.place))


def note(activation: Activation) -> None:
    """Write down what the code has just shown, but for what the history holds already."""
    publications = activation.loop.publications
    if publications is None:
        return
    for one in publications.fresh:
        if (one.name, one.place) not in publications.recorded:
            activation.note(one.type, activation.at, one.payload, name=one.name, place=one.place, digest=one.digest)
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
    published = any(event.type in SHOWN for event in commit.events)
    return replace(commit, attributes_set=commit.after.attributes != before.attributes, published=published)


def show(execution: Execution, name: str, raw: bytes) -> None:
    """An attempt publishes a value, from whichever thread; raises DefinitionError if nobody could read it."""
    if isinstance(execution.activation.workflow, QueueWork):
        raise DefinitionError(
            "a queued step is a process of its own, whose values nobody would look for. Return the value, and publish "
            "it in the workflow."
        )
    if len(execution.activation.events) >= limits.PUBLISHED_RECORDS:
        raise PayloadTooLarge(
            f"{limits.PUBLISHED_RECORDS:,} values wait to be written. Put several into one, or let the step await "
            "something now and then."
        )
    agent = execution.agent
    if get_ident() == agent.thread:
        agent.shown(execution, name, raw)
    else:
        agent.loop.call_soon_threadsafe(agent.shown, execution, name, raw)


def by_step(settle: Callable[[Activation], None], execution: Execution, name: str, raw: bytes) -> None:
    """Note a value that an attempt has published, and see to it that it is written, when the step lets us."""
    activation, ask, agent = execution.activation, execution.ask, execution.agent
    if execution.over or activation.gone:
        return
    publications_of(activation.loop)
    now = max(agent.time.now(), activation.at)
    activation.note(EventType.PUBLISHED, now, raw, name=name, place=f"{ask.name}:{ask.place}")
    agent.loop.call_soon(settle, activation)
