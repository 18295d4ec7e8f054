"""Telling: the verbs that start processes and tell them what to do."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from cyclopts import Parameter
from msgspec import to_builtins

from perdure.authoring.registry import Registry
from perdure.authoring.workflow import Workflow
from perdure.cli import page, table, text
from perdure.cli.argument import arguments, plain, whole_input
from perdure.cli.connection import ORIGIN, connected, user
from perdure.cli.line import complain, escaped, say
from perdure.cli.option import DEFAULT_URL, Json, Reference, References, Url, Who, Why
from perdure.cli.reference import process_named, reference_to
from perdure.cli.submission import submit
from perdure.engine import Engine
from perdure.errors import InvalidInput, PerdureError
from perdure.handle import Handle
from perdure.kernel.message import SendVerdict
from perdure.kernel.process import Process
from perdure.view import instant

_Args = Annotated[str, Parameter(allow_leading_hyphen=False)]
_Switch = Annotated[bool, Parameter(negative="")]


async def start(
    workflow: str,
    *args: _Args,
    key: str | None = None,
    input: str | None = None,
    lines: Annotated[Path | None, Parameter(name="--from", allow_leading_hyphen=True)] = None,
    deadline: str | None = None,
    signal: str | None = None,
    wait: _Switch = False,
    json: Json = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Start a process; once this has answered, nothing can lose it.

    Parameters
    ----------
    workflow
        Where it is defined: shop:order, or just shop if that module defines one workflow.
    args
        Its arguments; each is read as JSON, or else as text.
    key
        Your own id for it: a second start with the same key and input answers the same process.
    input
        All arguments at once, as a JSON array (by place) or object (by name).
    lines
        Start one process for each line of this file (- is standard input): {"key": "A-17", "input": ["A-17", 1299]}.
    deadline
        End it as failed if it is not finished by then: 90s, 15m, 2h, 7d.
    signal
        Send it this signal in the same transaction, as name=value; or send it to the process that has the key.
    wait
        Wait for its end and print its result.
    """
    flow = _workflow(workflow)
    async with connected(url, registry=Registry(flow), create=True) as engine:
        if lines is not None:
            _only_lines(args, key, input or signal)
            with nullcontext(sys.stdin) if str(lines) == "-" else _opened(lines) as source:
                await submit(engine, flow, source, json=json)
            return
        by_name: dict[str, Any] = {}
        if input is None:
            by_place = arguments(flow, args)
        elif args:
            raise InvalidInput("the arguments were given twice; give them one by one or as --input")
        else:
            by_place, by_name = whole_input(flow, input)
        seconds = None if deadline is None else text.seconds_of(deadline)
        first = None if signal is None else _first_signal(signal)
        options = flow.options(key=key, deadline=seconds, signal=first)
        handle = await engine.start(options, *by_place, **by_name)
        await _answer(handle, wait=wait, json=json)


def _first_signal(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    return name, plain(value) if equals else None


async def _answer(handle: Handle[Any], *, wait: bool, json: bool) -> None:
    told = {"id": handle.id, "kind": handle.kind, "key": handle.key, "created": handle.created}
    if handle.sent is not None:
        told["signal"] = handle.sent.value
    if not json:
        there = "started" if handle.created else "already exists:"
        sent = "" if handle.created or handle.sent is None else f"; {_SENT[handle.sent]}"
        say(f"{there} {handle.kind} {handle.key or ''}".rstrip() + f" {handle.id}{sent}")
    result = await handle.result() if wait else None
    if json:
        page.show_json(told | ({"result": to_builtins(result)} if wait else {}))
    elif wait:
        print(text.value(result, 2**22))


async def signal(
    process: Reference,
    name: str,
    value: str = "null",
    *,
    key: str | None = None,
    who: Who = "",
    why: Why = "",
    json: Json = False,
    url: Url = DEFAULT_URL,
) -> int:
    """Send a signal to a process; it waits in the inbox until the process receives it.

    Parameters
    ----------
    name
        The signal's name, as in receive("approval").
    value
        Its value, read as JSON, or else as text.
    key
        Makes a repeat with the same key count once.
    """

    async def sent(engine: Engine, row: Process) -> str:
        verdict = await engine.signal(row.id, name, plain(value), key=key, who=who or user(), why=why, origin=ORIGIN)
        return _SENT[verdict]

    return await each([process], sent, url=url, json=json)


async def cancel(
    process: References,
    *,
    deadline: str | None = None,
    who: Who = "",
    why: Why = "",
    json: Json = False,
    url: Url = DEFAULT_URL,
) -> int:
    """Ask processes to cancel: their code may clean up first.

    Parameters
    ----------
    deadline
        Terminate those that have not ended by then: 90s, 15m, 2h, 7d.
    """
    seconds = None if deadline is None else text.seconds_of(deadline)

    async def asked(engine: Engine, row: Process) -> str:
        verdict = await engine.cancel(row.id, deadline=seconds, who=who or user(), why=why, origin=ORIGIN)
        return "asked to cancel" if verdict is SendVerdict.DELIVERED else _SENT[verdict]

    return await each(process, asked, url=url, json=json)


async def terminate(
    process: References, *, who: Who = "", why: Why = "", json: Json = False, url: Url = DEFAULT_URL
) -> int:
    """End processes at once, without their code and without clean-up."""
    return await command_each(process, Engine.terminate, "terminated", who=who, why=why, url=url, json=json)


async def retry(
    process: References, *, who: Who = "", why: Why = "", json: Json = False, url: Url = DEFAULT_URL
) -> int:
    """Let failed, broken or held processes go on from their last good event."""
    return await command_each(process, Engine.retry, goes_on, who=who, why=why, url=url, json=json)


async def goes_on(engine: Engine, row: Process) -> str:
    """What becomes of a process that was just let go on."""
    view = await engine.status(row.id)
    now = instant(await engine.store.now())
    assert now is not None
    return f"goes on in run {view.run}; {table.next_move(view, now) or f'it has {view.status} since'}"


Answer: TypeAlias = str | Callable[[Engine, Process], Awaitable[str]]
"""What a command that was carried out is answered with: a text, or what tells it of the process afterwards."""


async def command_each(
    texts: Sequence[str],
    verb: Callable[..., Awaitable[None]],
    answer: Answer,
    *args: Any,
    who: str,
    why: str,
    url: str,
    json: bool,
) -> int:
    """Carry out a verb of the engine on each process, in the name of whoever asks."""

    async def carried_out(engine: Engine, row: Process) -> str:
        await verb(engine, row.id, *args, who=who or user(), why=why, origin=ORIGIN)
        return answer if isinstance(answer, str) else await answer(engine, row)

    return await each(texts, carried_out, url=url, json=json)


async def each(
    texts: Sequence[str], command: Callable[[Engine, Process], Awaitable[str]], *, url: str, json: bool
) -> int:
    """Carry out a command on each process; one that is refused does not stop the others."""
    told: list[dict[str, str | None]] = []
    refused = 0
    async with connected(url) as engine:
        for one in texts:
            try:
                row = await process_named(engine, one)
                answer = await command(engine, row)
            except PerdureError as error:
                if len(texts) == 1:
                    raise
                refused += 1
                complain(f"{one}: {error}")
                told.append({"process": escaped(one), "error": str(error)})
                continue
            in_vain = answer == _SENT[SendVerdict.FINISHED]
            refused += in_vain
            told.append({"process": escaped(one), "kind": row.kind, "key": row.key, "answer": answer})
            if in_vain:
                complain(f"{reference_to(row)}: {answer}")
            elif not json:
                say(f"{reference_to(row)}: {answer}")
    if json:
        page.show_json(told)
    return 1 if refused else 0


_SENT = {
    SendVerdict.DELIVERED: "sent",
    SendVerdict.DUPLICATE: "had been sent before, with the same key",
    SendVerdict.FINISHED: "has ended, so nobody will read it; the message was recorded",
    SendVerdict.NOT_FOUND: "is not there any more: its retention is over",
}


def _workflow(source: str) -> Workflow[Any, Any]:
    """The one workflow that ``shop:order`` or ``shop`` names."""
    sys.path.append("")  # modules are looked for where the person stands, after all libraries
    registry = Registry(source)
    if len(registry.kinds) != 1:
        choice = ", ".join(f"{source}:{flow.function.__name__}" for flow in registry.kinds.values())
        raise InvalidInput(f"{source} defines {len(registry.kinds)} workflows; name one: {choice}")
    return next(iter(registry.kinds.values()))


def _only_lines(args: Sequence[str], key: str | None, input: str | None) -> None:
    if args or key is not None or input is not None:
        raise InvalidInput("with --from, keys and arguments stand in the lines; leave the others out")


def _opened(path: Path) -> Any:
    try:
        return path.open(encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read ({error.strerror}); give a file of JSON lines") from None
