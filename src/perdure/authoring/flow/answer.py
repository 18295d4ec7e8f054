"""Answers of outside systems and of the flow's own actions: to which event each of them leads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from perdure.authoring.flow.event import FlowEvent, Happened
from perdure.errors import DefinitionError
from perdure.kernel import payload

CODES = ("code", "reason")
"""Parameters of an event that an answer fills by itself; its value goes to the one parameter that is left."""


class Answer(Struct, frozen=True):
    """What was answered: a response ``code``, a ``reason`` code that may refine it, and a ``value``."""

    code: str = ""
    reason: str = ""
    value: Any = None


class Interim:
    """An event to which an answer leads that does not complete its request."""

    def __init__(self, event: FlowEvent[...]) -> None:
        self.event = event


def interim(event: FlowEvent[...]) -> Interim:
    """Mark an answer as not completing: ``answers={"PDNG": flow.interim(acknowledged)}``.

    Its event comes like any other, and the request goes on to wait, and to be sent again.
    """
    if not isinstance(event, FlowEvent):
        raise DefinitionError(f"flow.interim({event!r:.100}) names no event. Give a method marked @flow.event.")
    return Interim(event)


Codes = Mapping[str | tuple[str, str], FlowEvent[...] | Interim]
"""Events by the code of the answer, or by code and reason, which stand above the code alone."""


Lead = tuple[FlowEvent[...], bool]
"""An event, and whether the answer that leads to it completes its request."""

OTHER = "any other"
"""What is shown in place of a code for the default."""


class AnswerCodes:
    """The answers that an action or a request knows, with the ``default`` for all others."""

    def __init__(self, owner: str, answers: Codes, default: FlowEvent[...] | Interim | None) -> None:
        self._by_code = {_key(owner, key): _lead(owner, one) for key, one in answers.items()}
        self._default = None if default is None else _lead(owner, default)
        for one in self.events:
            others = [name for name in one.parameters if name not in CODES]
            if len(others) > 1:
                raise DefinitionError(
                    f"answers of {owner} lead to the event {one.name!r}, which takes {', '.join(others)}. It may take "
                    "`code`, `reason` and one parameter more, which gets the value of the answer."
                )

    def __bool__(self) -> bool:
        return bool(self._by_code) or self._default is not None

    @property
    def events(self) -> Iterator[FlowEvent[...]]:
        """All events to which answers lead."""
        return (event for _, event, _ in self.codes)

    @property
    def codes(self) -> Iterator[tuple[str, FlowEvent[...], bool]]:
        """Each code, or code and reason, with its event and whether it completes the request."""
        for (code, reason), (event, completing) in self._by_code.items():
            yield f"{code}/{reason}" if reason else code, event, completing
        if self._default is not None:
            yield OTHER, *self._default

    def find(self, answer: Answer) -> Lead | None:
        """The event to which an answer leads, and whether it completes the request; None: such an answer is unknown."""
        by_code = self._by_code
        return by_code.get((answer.code, answer.reason)) or by_code.get((answer.code, "")) or self._default


def happened(event: FlowEvent[...], answer: Answer) -> Happened:
    """The event with what the answer brings; raises PayloadError if that does not fit its parameters."""
    told: dict[str, Any] = {}
    for name in event.parameters:
        value = getattr(answer, name) if name in CODES else answer.value
        if value is not None or name not in event.optional:
            told[name] = value
    raw = payload.encode(told, what=f"the answer {answer.code!r}")
    args, kwargs = event.shape.decode(raw)
    return Happened(event.name, args, kwargs)


def _key(owner: str, key: Any) -> tuple[str, str]:
    if isinstance(key, str):
        return key, ""
    if isinstance(key, tuple) and len(key) == 2 and all(isinstance(one, str) for one in key):
        return key
    raise DefinitionError(f"{owner} has an answer {key!r:.100}. Give its code as a text, or a pair of code and reason.")


def _lead(owner: str, one: Any) -> Lead:
    event, completing = (one.event, False) if isinstance(one, Interim) else (one, True)
    if not isinstance(event, FlowEvent):
        raise DefinitionError(f"an answer of {owner} leads to {one!r:.100}. Name a method marked @flow.event above it.")
    return event, completing
