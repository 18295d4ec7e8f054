"""Starting at the terminal: one process from typed arguments, or many from lines of JSON."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, TextIO, get_type_hints

import msgspec
from cyclopts import Parameter
from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from perdure.authoring.registry import Registry
from perdure.authoring.workflow import Workflow
from perdure.cli import output, text
from perdure.cli.options import DEFAULT_URL, Attributes, Json, Switch, Url, attributes_of, connected, plain, typed
from perdure.cli.plain_output import say
from perdure.client.handle import Handle
from perdure.engine import Engine
from perdure.errors import InvalidInput, PayloadError, PerdureError
from perdure.kernel.message import SendVerdict
from perdure.kernel.names import check_key
from perdure.kernel.payload import decode
from perdure.limits import BATCH_RECORDS


def arguments(workflow: Workflow[Any, Any], texts: Sequence[str]) -> list[Any]:
    """The typed texts as the workflow's positional arguments; raises InvalidInput or PayloadError."""
    names = [
        name
        for name, one in inspect.signature(workflow.function).parameters.items()
        if one.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    ]
    if len(texts) > len(names):
        raise InvalidInput(
            f"{workflow.name} takes {len(names)} arguments ({', '.join(names) or 'none'}), but {len(texts)} were given"
        )
    hints = get_type_hints(workflow.function, include_extras=True)
    return [_read(name, hints.get(name, Any), text) for name, text in zip(names, texts, strict=False)]


def typed_input(
    workflow: Workflow[Any, Any], texts: Sequence[str], whole: str | None
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """The workflow's arguments by place and by name, typed one by one or as a whole; raises InvalidInput."""
    if whole is None:
        return arguments(workflow, texts), {}
    if texts:
        raise InvalidInput("the arguments are given twice; give them one by one or as --input")
    return whole_input(workflow, whole)


def whole_input(workflow: Workflow[Any, Any], raw: str) -> tuple[list[Any], dict[str, Any]]:
    """A JSON array (arguments by place) or object (by name) as the workflow's arguments."""
    return workflow.shape.decode(typed(raw.strip()))


def _read(name: str, hint: Any, text: str) -> Any:
    """Read as JSON first, then as text; where the workflow wants a text, the other way round."""
    forms = [typed(text), msgspec.json.encode(text)]
    refusals = []
    for raw in reversed(forms) if hint is str else forms:
        try:
            return decode(raw, hint, what=f"argument {name!r}")
        except PayloadError as error:
            refusals.append(error)
    raise refusals[0]


class BadLine(PerdureError):
    """A line of a file cannot be started; the lines of the batches before it were."""


class InputLine(msgspec.Struct, forbid_unknown_fields=True):
    """One line: the arguments as an array or object, and the caller's own id."""

    input: msgspec.Raw
    key: str | None = None


async def submit(engine: Engine, workflow: Workflow[Any, Any], source: Iterable[str], *, json: bool) -> None:
    """Start one process for each line; a bad line stops it, and the corrected file can be sent again."""
    created = existed = 0
    lines = enumerate(source, 1)
    console = output.console(error=True)
    columns = SpinnerColumn(), TextColumn("starting"), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("starting", total=None)
        while calls := list(_calls(workflow, islice(lines, BATCH_RECORDS), created + existed)):
            handles = await engine.start_many(workflow, [args for args, _ in calls], keys=[key for _, key in calls])
            new = sum(handle.created for handle in handles)
            created += new
            existed += len(handles) - new
            progress.update(bar, advance=len(handles))
    if json:
        output.show_json({"kind": workflow.name, "created": created, "existed": existed})
    else:
        there = f"; {existed:,} already existed" if existed else ""
        print(f"started {created:,} processes of kind {workflow.name}{there}")


def _calls(
    workflow: Workflow[Any, Any], lines: Iterable[tuple[int, str]], before: int
) -> Iterator[tuple[list[Any], str | None]]:
    for number, raw in lines:
        if not raw.strip():
            continue
        try:
            _check_utf8(raw)
            line = msgspec.json.decode(raw, type=InputLine)
            args, named = whole_input(workflow, bytes(line.input).decode())
            if line.key is not None:
                check_key(line.key)
            if named:
                raise InvalidInput("write the arguments as an array, in their order")
        except (ValueError, UnicodeError) as error:
            raise BadLine(
                f"line {number}: {error} The {before:,} before this batch were started; correct the line and send the "
                "file again: lines with keys are started once."
            ) from None
        yield args, line.key


TypedArgument = Annotated[str, Parameter(allow_leading_hyphen=False)]


async def start(
    workflow: str,
    *args: TypedArgument,
    key: str | None = None,
    input: str | None = None,
    lines: Annotated[Path | None, Parameter(name="--from", allow_leading_hyphen=True)] = None,
    attribute: Attributes = None,
    delay: str | None = None,
    deadline: str | None = None,
    priority: int | None = None,
    signal: str | None = None,
    reply_to: str | None = None,
    context: str | None = None,
    wait: Switch = False,
    json: Json = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Start a process; once this has answered, no crash can lose it.

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
    attribute
        A search attribute, as name=value; may be given several times.
    delay
        Start its code after this time: 90s, 15m, 2h, 7d. A message that comes sooner starts it at once.
    deadline
        End it as failed if it is not finished by then: 90s, 15m, 2h, 7d.
    priority
        From 0 (first) to 9: whose turn it is when many wait for a worker. Default: 4.
    signal
        Send it this signal in the same transaction, as name=value; or to the process that has the key already.
    reply_to
        Tell another process, by its id, or an http(s):// URL what becomes of it.
    context
        What travels on into its steps and children, as a JSON object: '{"tenant": "acme"}'.
    wait
        Wait for its end and print its result.
    """
    flow = the_workflow(workflow)
    async with connected(url, registry=Registry(flow)) as engine:
        if lines is not None:
            _only_lines(args, key, input, signal, attribute, delay, deadline, priority, reply_to, context, wait or None)
            with nullcontext(_standard_input()) if str(lines) == "-" else _opened(lines) as source:
                await submit(engine, flow, source, json=json)
            return
        by_place, by_name = typed_input(flow, args, input)
        options = flow.options(
            key=key,
            deadline=None if deadline is None else text.seconds_of(deadline),
            delay=None if delay is None else text.seconds_of(delay),
            priority=priority,
            attributes=attributes_of(attribute) or None,
            signal=None if signal is None else _first_signal(signal),
            reply_to=reply_to,
            context=None if context is None else plain(context),
        )
        handle = await engine.start(options, *by_place, **by_name)
        await _answer(handle, engine.process(handle.id), wait=wait, json=json)


def _first_signal(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    return name, plain(value) if equals else None


async def _answer(handle: Handle[Any], plain: Handle[Any], *, wait: bool, json: bool) -> None:
    """Say what was started, and the result: the tree that is stored, and not an object of the workflow's own type."""
    told = {"id": handle.id, "kind": handle.kind, "key": handle.key, "created": handle.created}
    if handle.sent is not None:
        told["signal"] = handle.sent.value
    if not json:
        there = "started" if handle.created else "already exists:"
        sent = "" if handle.created or handle.sent is None else f"; {SENT[handle.sent]}"
        say(f"{there} {handle.kind} {handle.key or ''}".rstrip() + f" {handle.id}{sent}")
    result = await plain.result() if wait else None
    if json:
        output.show_json(told | ({"result": result} if wait else {}))
    elif wait:
        print(text.value(result, 2**22))


SENT = {
    SendVerdict.DELIVERED: "sent",
    SendVerdict.DUPLICATE: "had been sent before, with the same key",
    SendVerdict.FINISHED: "has ended, so nobody will read it; the message was recorded",
    SendVerdict.NOT_FOUND: "no longer exists: its retention is over",
}


def the_workflow(source: str) -> Workflow[Any, Any]:
    """The one workflow that ``shop:order`` or ``shop`` names."""
    sys.path.append("")  # modules are looked for in the current folder, after all libraries
    registry = Registry(source)
    if len(registry.kinds) != 1:
        choice = ", ".join(f"{source}:{flow.function.__name__}" for flow in registry.kinds.values())
        raise InvalidInput(f"{source} defines {len(registry.kinds)} workflows; name one: {choice}")
    return next(iter(registry.kinds.values()))


def _only_lines(args: Sequence[str], *options: object) -> None:
    if args or any(option is not None for option in options):
        raise InvalidInput("with --from, the lines give keys and arguments; leave out arguments and other options")


NOT_UTF8 = "surrogateescape"
"""How lines are read: a byte that is not UTF-8 becomes a half of a surrogate pair, and is told with its line."""


def _check_utf8(line: str) -> None:
    try:
        line.encode()
    except UnicodeEncodeError as error:
        place, byte = error.start + 1, ord(line[error.start]) & 0xFF
        raise InvalidInput(f"it is not UTF-8: character {place} is the byte 0x{byte:02x}.") from None


def _standard_input() -> TextIO:
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors=NOT_UTF8)
    return sys.stdin


def _opened(path: Path) -> Any:
    try:
        return path.open(encoding="utf-8", errors=NOT_UTF8)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read ({error.strerror}); give a file of JSON lines") from None
