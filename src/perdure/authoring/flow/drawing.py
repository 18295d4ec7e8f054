"""The drawing of a flow: from its definition a Mermaid diagram, a Markdown table, and a skeleton of tests."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Iterator

from perdure.authoring.flow.action import Action, FlowRequest
from perdure.authoring.flow.answer import OTHER
from perdure.authoring.flow.behaviour import Behaviour
from perdure.authoring.flow.event import FlowEvent
from perdure.authoring.flow.row import Row
from perdure.authoring.flow.state import State, TimedOut

ANYWHERE = "any_state"
Way = list[tuple[str, Row]]
"""The rows from the beginning to a state, each with the state that it leaves."""


def diagram(behaviour: Behaviour) -> str:
    """A ``stateDiagram-v2``; rows for any state begin at a state of that name."""
    lines = ["stateDiagram-v2"]
    for row in behaviour.rows:
        does = f" / {', '.join(one.name for one in row.actions)}" if row.actions else ""
        starts = ["[*]"] if row.begins else [state.name for state in row.states] or [ANYWHERE]
        for start in starts:
            lines.append(f"    {start} --> {row.target.name if row.target else start}: {row.label}{does}")
    lines += [f"    {state.name} --> [*]" for state in behaviour.states.values() if state.terminal]
    return "\n".join(lines) + "\n"


def table(behaviour: Behaviour) -> str:
    """The rows, then the states with what they mean."""
    lines = ["| in state | on | to | do |", "|---|---|---|---|"]
    for row in behaviour.rows:
        where = ", ".join(state.name for state in row.states) or ("" if row.begins else "any")
        does = [one.name for one in row.actions] + [f"stop {one.name}" for one in row.stopped]
        lines.append(_line(where, row.label, row.target.name if row.target else "(stays)", ", ".join(does)))
    lines += ["", "| state | phase | timeout | end |", "|---|---|---|---|"]
    for state in behaviour.states.values():
        end = ("failed" if state.failed else "completed") if state.terminal else ""
        lines.append(_line(state.name, state.phase, _seconds(state.timeout), end))
    lines += _requests(behaviour)
    for one in behaviour.stretches.values():
        lines += ["", f"From {one.start.name} to {one.end.name} within {_seconds(one.timeout)}, else {one.timed_out}."]
    return "\n".join(lines) + "\n"


def _requests(behaviour: Behaviour) -> Iterator[str]:
    """The answers that requests and actions know."""
    answering = [one for one in behaviour.actions.values() if one.answers]
    if answering:
        yield from ("", "| asked by | answer | event | completes |", "|---|---|---|---|")
    for one in answering:
        for code, event, completing in one.answers.codes:
            yield _line(one.name, code, event.name, "yes" if completing else "no")


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |")


def _seconds(timeout: float | None) -> str:
    return "" if timeout is None else f"{timeout:g} s"


# -- the skeleton of tests ---------------------------------------------------------------------------------------------


def scenario(behaviour: Behaviour) -> str:
    """One test for the shortest way to each end."""
    name = behaviour.kind.__name__
    module = behaviour.kind.__module__
    lines = [
        f'"""Scenarios of {name}: one for each end that it may come to. Fill in what stands as `...`."""',
        "",
        f"from {module} import {name}",
        "from perdure import testing",
    ]
    ways = _ways(behaviour)
    for state in behaviour.states.values():
        if state.terminal:
            lines += ["", "", *_test(behaviour, state, ways[state.name])]
    return "\n".join(lines) + "\n"


def _ways(behaviour: Behaviour) -> dict[str, Way]:
    """The shortest way to each state."""
    (beginning,) = behaviour.beginnings
    first = beginning.target.name if beginning.target else ""
    ways: dict[str, Way] = {first: []}
    ahead = deque([first])
    while ahead:
        state = ahead.popleft()
        for row in behaviour.ways(state):
            if row.target is not None and row.target.name not in ways:
                ways[row.target.name] = [*ways[state], (state, row)]
                ahead.append(row.target.name)
    return ways


def _test(behaviour: Behaviour, end: State, way: Way) -> Iterator[str]:
    name = behaviour.kind.__name__
    (init,) = behaviour.inits.values()
    yield f"async def test_a_{name.lower()}_that_comes_to_{end.name}() -> None:"
    yield "    async with testing.engine() as engine:"
    yield f"        handle = await engine.start({name}.{init.name}{_dots(init.body)})"
    (beginning,) = behaviour.beginnings
    doing = beginning.actions
    for _, row in way:
        triggers = row.triggers if row.together else row.triggers[:1]
        if row.condition is not None:
            yield f"        # this way only if {row.condition.name}"
        for trigger in triggers:
            yield from _came(behaviour, trigger, doing)
        doing = row.actions
    yield f'        assert (await handle.status()).attributes["state"] == "{end.name}"'


def _came(behaviour: Behaviour, trigger: FlowEvent[...] | TimedOut, doing: tuple[Action, ...]) -> Iterator[str]:
    """The lines that bring an event about: by an answer, by waiting, or from outside."""
    name = behaviour.kind.__name__
    if isinstance(trigger, TimedOut):
        yield f"        await engine.sleep({trigger.of.timeout or 0:g} + 1)  # {trigger}"
        return
    for one in doing:
        codes = [code for code, event, _ in one.answers.codes if event is trigger]
        if codes and isinstance(one, FlowRequest):
            code, _, reason = codes[0].partition("/")
            told = ["..." if code == OTHER else f'"{code}"', *([f'"{reason}"'] if reason else []), "value=..."]
            yield "        await engine.sleep(0.001)  # until nothing runs"
            yield '        (asked,) = (await handle.status()).state["flow"]["requests"]'
            yield f'        await handle.call({name}.answer, asked["id"], {", ".join(told)})'
            return
        if trigger.name in behaviour.outcomes(one):
            yield f"        # {one.name} brings about {trigger.name}"
            return
    yield f"        await handle.call({name}.{trigger.name}{_dots(trigger.body)})"


def _dots(function: object) -> str:
    _, *taken = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    return "".join(", ..." for one in taken if one.default is one.empty)
