"""Commands: the verbs with which a person pauses processes, begins them again, or answers in the place of a step."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from perdure.cli.argument import plain
from perdure.cli.option import DEFAULT_URL, Json, References, Url, Who, Why
from perdure.cli.tell import command_each, goes_on
from perdure.engine import Engine
from perdure.kernel.process import Process, Status

Step = Annotated[
    str, Parameter(name="--step", help="The step, by its name, or name and place as in `perdure history`: charge:2.")
]


async def hold(process: References, *, who: Who = "", why: Why = "", json: Json = False, url: Url = DEFAULT_URL) -> int:
    """Pause running processes until they are resumed; messages wait meanwhile."""
    return await command_each(process, Engine.hold, "held", who=who, why=why, url=url, json=json)


async def resume(
    process: References, *, who: Who = "", why: Why = "", json: Json = False, url: Url = DEFAULT_URL
) -> int:
    """Let held processes go on where they were."""
    return await command_each(process, Engine.resume, goes_on, who=who, why=why, url=url, json=json)


async def restart(
    process: References, *, who: Who = "", why: Why = "", json: Json = False, url: Url = DEFAULT_URL
) -> int:
    """Begin processes again from their stored input, in a new run that keeps nothing."""
    return await command_each(process, Engine.restart, goes_on, who=who, why=why, url=url, json=json)


async def restart_from(
    process: References, *, step: Step, who: Who = "", why: Why = "", json: Json = False, url: Url = DEFAULT_URL
) -> int:
    """Run a step of processes again and all that followed it, in a new run that keeps the rest."""
    return await command_each(process, Engine.restart_from, goes_on, step, who=who, why=why, url=url, json=json)


async def set_result(
    process: References,
    *,
    step: Step,
    value: str,
    who: Who = "",
    why: Why = "",
    json: Json = False,
    url: Url = DEFAULT_URL,
) -> int:
    """Give a step that is open or has failed its result by hand.

    Parameters
    ----------
    value
        The result, read as JSON, or else as text.
    """
    return await command_each(
        process, Engine.set_result, _unless_held, step, plain(value), who=who, why=why, url=url, json=json
    )


async def skip(
    process: References, *, step: Step, who: Who = "", why: Why = "", json: Json = False, url: Url = DEFAULT_URL
) -> int:
    """Leave out a step that is open or has failed: its result is null."""
    return await command_each(process, Engine.skip, _unless_held, step, who=who, why=why, url=url, json=json)


async def _unless_held(engine: Engine, row: Process) -> str:
    return "recorded; it is still held" if row.status is Status.HELD else await goes_on(engine, row)
