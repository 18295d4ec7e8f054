"""Policies by name: retries and timeouts of steps that are set from outside of the code, for one or for many.

A key names a workflow, a state of it and a step: ``order.*.charge``. Of a flow it names a state, and one of its actions
or requests, or a step: ``Claim.paying.transfer``; or, to set its time, the state itself, or a stretch that begins in
it: ``Claim.paying.settlement``. Any other workflow has one state, which has no name: ``*``. Any part
may be ``*``, which stands for each. For each property the key with more names counts, of two with as many the one that
names the part further left; of one key that is set twice, the later source. If a ``first`` and a ``cap`` that meet do
not fit, the one that counts more sets both.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import combinations
from math import isfinite
from typing import Any, NamedTuple

from msgspec import UNSET, UnsetType, json

from perdure.clock import Duration, in_seconds
from perdure.errors import DefinitionError
from perdure.kernel.names import near
from perdure.kernel.plain import shown
from perdure.kernel.retry import Retry, Stage, plain_stages

ANY = "*"
POLICIES = "PERDURE_POLICIES"
"""The variable of the environment that sets policies, as JSON."""
NO_BOUND = "none"
"""What stands for no bound in a file or in the environment, which cannot say None."""

Subject = tuple[str, str, str]
"""The names of a workflow, of its state and of a step."""
Flows = Mapping[str, Mapping[str, Collection[str]]]
"""The names of flows, of their states, and of what is done in each of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What is set for the steps that a key names; what is left out stays as it is.

    ``timeout`` is how long an attempt may take, ``at_most_once`` has the step never run twice, and ``revival_delay`` is
    how long after the loss of its worker a step that was under way begins again: None is at once, 0 is not before a
    person retries the process. ``keep_arguments`` has the history keep the arguments of the step. The others are those
    of :class:`~perdure.Retry`. Durations are seconds or timedeltas. ``total``, ``budget`` and ``timeout_cap`` may be
    None, which is no bound; a file says "none". Raises DefinitionError.
    """

    timeout: Duration | UnsetType = UNSET
    attempts: int | UnsetType = UNSET
    first: Duration | UnsetType = UNSET
    factor: float | UnsetType = UNSET
    cap: Duration | UnsetType = UNSET
    jitter: float | UnsetType = UNSET
    total: Duration | UnsetType | None = UNSET
    budget: int | UnsetType | None = UNSET
    backoffs: Sequence[Duration] | UnsetType = UNSET
    offsets: bool | UnsetType = UNSET
    timeout_factor: float | UnsetType = UNSET
    timeout_cap: Duration | UnsetType | None = UNSET
    then: Sequence[Stage] | UnsetType = UNSET
    at_most_once: bool | UnsetType = UNSET
    revival_delay: Duration | UnsetType | None = UNSET
    keep_arguments: bool | UnsetType = UNSET

    def __post_init__(self) -> None:
        given = self.given
        timeout = given.pop("timeout", 1.0)
        if not (_is_number(timeout) and timeout > 0):
            raise DefinitionError(
                f"Policy(timeout={shown(timeout)}) makes no sense: give seconds or a timedelta, more than 0 and finite."
            )
        for name in ("at_most_once", "keep_arguments"):
            flag = given.pop(name, False)
            if not isinstance(flag, bool):
                raise DefinitionError(f"Policy({name}={shown(flag)}) makes no sense: give True or False.")
        check_revival_delay(given.pop("revival_delay", None), "Policy")
        fitting(Retry(), given)

    @property
    def given(self) -> dict[str, Any]:
        """The properties that are set, in seconds."""
        found = {name: getattr(self, name) for name in PROPERTIES}
        return {name: _plain(name, value) for name, value in found.items() if value is not UNSET}


PROPERTIES = tuple(field.name for field in fields(Policy))
_OF_STEP = ("timeout", "at_most_once", "revival_delay", "keep_arguments")
OF_RETRY = tuple(name for name in PROPERTIES if name not in _OF_STEP)
_BOUNDS = ("total", "budget", "timeout_cap", "revival_delay")


class Ruling(NamedTuple):
    """The value of one property, the key that sets it, and where that key stands."""

    value: Any
    key: str
    source: str


class Policies:
    """All policies of a program, by source and key; ``sources`` are in the order in which later ones count more."""

    def __init__(self, sources: Iterable[tuple[str, Mapping[str, Any]]] = ()) -> None:
        self.set: dict[str, dict[str, Ruling]] = {}
        """What is set for each key, the later source first."""
        self._given: list[dict[str, dict[str, Any]]] = []
        for source, policies in sources:
            checked = {key: _checked(one, f"the policy {key!r} of {source}").given for key, one in policies.items()}
            self._given += [checked] if checked else []
            for key, given in checked.items():
                rulings = {name: Ruling(given[name], key, source) for name in given}
                older = self.set.get(key, {})
                self.set[key] = rulings | {name: one for name, one in older.items() if name not in rulings}

    def __bool__(self) -> bool:
        return bool(self.set)

    def of(self, subject: Subject, declared: Container[str] = (), here: Container[str] = ()) -> dict[str, Ruling]:
        """What is set for a step: its properties by name.

        What its definition has ``declared``, like ``retry`` or ``timeout``, only a key that names the step replaces;
        what was set ``here``, at one place of the workflow, only a key that names workflow and step.
        """
        found: dict[str, Ruling] = {}
        for key, (flow, _, action) in keys(subject):
            for name, one in self.set.get(key, {}).items():
                setting = setting_of(name)
                given_here = setting in here and ANY in (flow, action)
                if not (given_here or (setting in declared and action == ANY)):
                    found.setdefault(name, one)
        return _fit(found)

    def check(self, workflows: Collection[str], steps: Collection[str], flows: Flows | None = None) -> None:
        """Raise DefinitionError if a key names none of these; a flow has states, and actions done in each of them."""
        flows = flows or {}
        lefts, rights = {ANY, *workflows}, {ANY, *steps}
        for key, policy in self.set.items():
            if not any(_names(ends, lefts, rights, flows) for ends in _parts(key)):
                source = next(iter(policy.values())).source if policy else "the policies"
                subjects = [(name, ANY, step) for name in workflows for step in steps]
                subjects += [(name, state, ANY) for name, states in flows.items() for state in states]
                subjects += [
                    (name, state, action)
                    for name, states in flows.items()
                    for state, actions in states.items()
                    for action in actions
                ]
                known = {known for subject in subjects for known, _ in keys(subject)}
                hint = near(key, sorted(known)) or " Write workflow.*.step or flow.state.action, each part a name or *."
                raise DefinitionError(
                    f"the policy {key!r} of {source} names no workflow and step of this program.{hint}"
                )

    def encode(self) -> str:
        """The same as the environment of another program would say it: source by source, as they count.

        Of one key that is set twice a later source may not fit an earlier one: they could not be said as one policy.
        """
        plain = [
            {
                key: {name: NO_BOUND if value is None else value for name, value in given.items()}
                for key, given in policies.items()
            }
            for policies in self._given
        ]
        return json.encode(plain).decode()


def _fit(found: dict[str, Ruling]) -> dict[str, Ruling]:
    """Let the one of ``first`` and ``cap`` that stands before the other, and counts more, set both if they misfit."""
    if "first" in found and "cap" in found and found["first"].value > found["cap"].value:
        more, less = (name for name in found if name in ("first", "cap"))
        found[less] = found[more]
    return found


def setting_of(property: str) -> str:
    """The setting of a step that a property belongs to."""
    return "retry" if property in OF_RETRY else property


def keys(subject: Subject) -> Iterator[tuple[str, Subject]]:
    """The keys that name a step, the one that counts most first, each with its parts."""
    seen = set()
    for pattern in _PATTERNS:
        parts = tuple(name if named else ANY for name, named in zip(subject, pattern, strict=True))
        key = ".".join(parts)
        if key not in seen:
            seen.add(key)
            yield key, parts  # type: ignore[misc]  # three, as the pattern has


_PATTERNS = sorted(((a, b, c) for a in (1, 0) for b in (1, 0) for c in (1, 0)), key=lambda p: (-sum(p), (-p[0], -p[1])))


def _parts(key: str) -> Iterator[Subject]:
    """What a key may name, as workflow, state and step: more than one way if a name has dots of its own."""
    words = key.split(".")
    for first, second in combinations(range(1, len(words)), 2):
        yield ".".join(words[:first]), ".".join(words[first:second]), ".".join(words[second:])


def _names(parts: Subject, workflows: Container[str], steps: Container[str], flows: Flows) -> bool:
    """Whether these are names, or ``*``, of something that there is."""
    left, middle, right = parts
    if left not in workflows:
        return False
    states = [
        one for flow, all in flows.items() if left in (ANY, flow) for one in all.items() if middle in (ANY, one[0])
    ]
    if middle != ANY and not states:
        return False
    return right in steps or any(right in actions for _, actions in states)


def _plain(name: str, value: Any) -> Any:
    if name in _BOUNDS and value == NO_BOUND:
        return None
    if value is None and name not in _BOUNDS:
        raise DefinitionError(f"Policy({name}=None) makes no sense: leave it out, and it stays as it is.")
    if name == "then":
        return plain_stages(value)
    if isinstance(value, list | tuple):
        return tuple(map(in_seconds, value))
    return in_seconds(value)


def _checked(policy: Any, what: str) -> Policy:
    """A policy, or a mapping that says the same; raises DefinitionError."""
    if isinstance(policy, Policy):
        return policy
    if not isinstance(policy, Mapping) or not policy.keys() <= set(PROPERTIES):
        text = f"sets {', '.join(map(str, policy))}" if isinstance(policy, Mapping) else f"is {shown(policy)}"
        raise DefinitionError(f"{what} {text}. A policy sets some of {', '.join(PROPERTIES)}.")
    try:
        return Policy(**policy)
    except DefinitionError as error:
        raise DefinitionError(f"{what}: {error}") from None


def check_revival_delay(delay: Any, where: str) -> None:
    """Raise DefinitionError if a delay, in seconds, is neither None nor 0 or more."""
    if delay is not None and not (_is_number(delay) and delay >= 0):
        raise DefinitionError(
            f"{where} has revival_delay={shown(delay)}. Give seconds or a timedelta, or 0 to switch revival off."
        )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def fitting(retry: Retry, given: Mapping[str, Any]) -> Retry:
    """A retry with these properties in place of its own; a longer ``first`` lifts the ``cap``; DefinitionError."""
    own = {name: getattr(retry, name) for name in (*OF_RETRY, "on", "never", "waits")}
    if "backoffs" in given and "attempts" not in given:
        own["attempts"] = None
    if "first" in given and "cap" not in given and _is_number(given["first"]):
        own["cap"] = max(own["cap"], given["first"])
    if "cap" in given and "first" not in given and _is_number(given["cap"]):
        own["first"] = min(own["first"], given["cap"])
    return Retry(**own | dict(given))
