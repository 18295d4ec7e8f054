"""Commands to processes at the terminal: what they shall do, and questions to them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Annotated, Any, TypeAlias

from cyclopts import Parameter

from perdure.cli import exit_code, output, table, text
from perdure.cli.options import (
    DEFAULT_URL,
    ORIGIN,
    Json,
    ProcessArgument,
    ProcessArguments,
    Url,
    Who,
    Why,
    connected,
    plain,
    present,
    process_named,
    reference_to,
    user,
)
from perdure.cli.plain_output import complain, say
from perdure.cli.start import SENT
from perdure.client.handle import Handle
from perdure.engine import Engine
from perdure.errors import PerdureError
from perdure.kernel.failure import escaped
from perdure.kernel.message import SendVerdict
from perdure.kernel.names import id_text
from perdure.kernel.process import Process, Status


async def signal(
    process: ProcessArgument,
    name: str,
    value: str = "null",
    *,
    key: str | None = None,
    context: str | None = None,
    who: Who = "",
    why: Why = "",
    json: Json = False,
    url: Url = DEFAULT_URL,
) -> int:
    """Send a signal; it waits in the inbox until the process receives it.

    Parameters
    ----------
    name
        The signal's name, as in receive("approval").
    value
        Its value, read as JSON, or else as text.
    key
        Your own id of the signal: sent again with the same key, it counts once.
    context
        What goes with it, as a JSON object: '{"tenant": "acme"}'.
    """
    given = None if context is None else plain(context)

    async def sent(engine: Engine, row: Process) -> str:
        verdict = await engine.process(row.id).signal(
            name, plain(value), key=key, who=who or user(), why=why, origin=ORIGIN, context=given
        )
        return SENT[verdict]

    return await each([process], sent, url=url, json=json)


async def cancel(
    process: ProcessArguments,
    *,
    deadline: str | None = None,
    who: Who = "",
    why: Why = "",
    json: Json = False,
    url: Url = DEFAULT_URL,
) -> int:
    """Ask processes to cancel; their code may clean up first.

    Parameters
    ----------
    deadline
        Terminate those that have not ended by then: 90s, 15m, 2h, 7d.
    """
    seconds = None if deadline is None else text.seconds_of(deadline)

    async def asked(engine: Engine, row: Process) -> str:
        verdict = await engine.process(row.id).cancel(deadline=seconds, who=who or user(), why=why, origin=ORIGIN)
        return "asked to cancel" if verdict is SendVerdict.DELIVERED else SENT[verdict]

    return await each(process, asked, url=url, json=json)


async def terminate(
    process: ProcessArguments, *, who: Who = "", why: Why = "", json: Json = False, url: Url = DEFAULT_URL
) -> int:
    """End processes at once: no code of theirs runs, no clean-up."""
    return await command_each(process, Handle.terminate, "terminated", who=who, why=why, url=url, json=json)


async def fail(
    process: ProcessArguments, *, who: Who = "", why: Why = "", json: Json = False, url: Url = DEFAULT_URL
) -> int:
    """Mark processes as failed at once.

    Whoever waits for them hears it. Their code does not run any more; `retry` takes it back.
    """
    return await command_each(process, Handle.fail, "marked as failed", who=who, why=why, url=url, json=json)


async def retry(
    process: ProcessArguments, *, who: Who = "", why: Why = "", json: Json = False, url: Url = DEFAULT_URL
) -> int:
    """Let failed, broken or held processes go on.

    A failed one goes on from its last good event, in a new run; a broken or
    held one where it was.
    """
    return await command_each(process, Handle.retry, goes_on, who=who, why=why, url=url, json=json)


async def goes_on(engine: Engine, row: Process) -> str:
    """What becomes of a process that has just been let go on."""
    view = await engine.process(row.id).status()
    return f"goes on in run {view.run}; {table.next_move(view, await present(engine)) or f'it is now {view.status}'}"


Reply: TypeAlias = str | Callable[[Engine, Process], Awaitable[str]]
"""What is printed of a command that was carried out: a text, or a function that reads it from the process."""


async def command_each(
    texts: Sequence[str],
    verb: Callable[..., Awaitable[None]],
    answer: Reply,
    *args: Any,
    who: str,
    why: str,
    url: str,
    json: bool,
) -> int:
    """Carry out a verb of a handle on each process, in the name of the user."""

    async def carried_out(engine: Engine, row: Process) -> str:
        await verb(engine.process(row.id), *args, who=who or user(), why=why, origin=ORIGIN)
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
            in_vain = answer == SENT[SendVerdict.FINISHED]
            refused += in_vain
            told.append({"process": escaped(one), "kind": row.kind, "key": row.key, "answer": answer})
            if in_vain:
                complain(f"{reference_to(row)}: {answer}")
            elif not json:
                say(f"{reference_to(row)}: {answer}")
    if json:
        output.show_json(told)
    return exit_code.FAILED if refused else exit_code.DONE


StepOption = Annotated[
    str, Parameter(name="--step", help="The step, by its name, or name and place as in `perdure trace`: charge:2.")
]


async def repair(
    process: ProcessArguments,
    *,
    method: str,
    value: str = "[]",
    key: str | None = None,
    who: Who = "",
    why: Why = "",
    json: Json = False,
    url: Url = DEFAULT_URL,
) -> int:
    """Let broken machines go on with another method.

    It is one that is made for that, and runs in place of the one that has failed.

    Parameters
    ----------
    method
        A method of the machine's class that is marked @machine.repair.
    value
        The list of its arguments, as JSON: [500].
    key
        Of repairs of a machine with the same key only the first counts.
    """
    return await command_each(
        process, partial(Handle.repair, key=key), goes_on, method, plain(value), who=who, why=why, url=url, json=json
    )


async def hold(
    process: ProcessArguments, *, who: Who = "", why: Why = "", json: Json = False, url: Url = DEFAULT_URL
) -> int:
    """Pause processes until they are resumed; messages wait."""
    return await command_each(process, Handle.hold, "held", who=who, why=why, url=url, json=json)


async def resume(
    process: ProcessArguments, *, who: Who = "", why: Why = "", json: Json = False, url: Url = DEFAULT_URL
) -> int:
    """Let held processes go on where they were."""
    return await command_each(process, Handle.resume, goes_on, who=who, why=why, url=url, json=json)


async def restart(
    process: ProcessArguments, *, who: Who = "", why: Why = "", json: Json = False, url: Url = DEFAULT_URL
) -> int:
    """Start processes again from their stored input, in a new run.

    The new run keeps nothing of the old one, which can still be read.
    """
    return await command_each(process, Handle.restart, goes_on, who=who, why=why, url=url, json=json)


async def restart_from(
    process: ProcessArguments,
    *,
    step: StepOption,
    who: Who = "",
    why: Why = "",
    json: Json = False,
    url: Url = DEFAULT_URL,
) -> int:
    """Run a step again and all that followed it, in a new run.

    The new run keeps the results of the steps before it.
    """
    return await command_each(process, Handle.restart_from, goes_on, step, who=who, why=why, url=url, json=json)


async def fork(
    process: ProcessArgument,
    *,
    at: str | None = None,
    key: str | None = None,
    code: str | None = None,
    who: Who = "",
    why: Why = "",
    json: Json = False,
    url: Url = DEFAULT_URL,
) -> int:
    """Start a process with the past of another one.

    It goes on from there by itself, under a new id; the other one stays as it
    is.

    Parameters
    ----------
    at
        A step, which runs again: charge, or charge:2. Or the number of the first event that is left out.
    key
        Your own id of the new process.
    code
        The version of the workflow's code; that of the other process is the default.
    """
    place = int(at) if at is not None and at.isdecimal() else at

    async def forked(engine: Engine, row: Process) -> str:
        handle = await engine.process(row.id).fork(
            place, key=key, version=code, who=who or user(), why=why, origin=ORIGIN
        )
        return f"process {handle.id} {'has its past' if handle.created else 'has the key already'}"

    return await each([process], forked, url=url, json=json)


async def set_result(
    process: ProcessArguments,
    *,
    step: StepOption,
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
        process, Handle.set_result, _unless_held, step, plain(value), who=who, why=why, url=url, json=json
    )


async def skip(
    process: ProcessArguments,
    *,
    step: StepOption,
    who: Who = "",
    why: Why = "",
    json: Json = False,
    url: Url = DEFAULT_URL,
) -> int:
    """Skip a step that is open or has failed: its result is null."""
    return await command_each(process, Handle.skip, _unless_held, step, who=who, why=why, url=url, json=json)


async def _unless_held(engine: Engine, row: Process) -> str:
    return "recorded; it is still held" if row.status is Status.HELD else await goes_on(engine, row)


_ANSWER_BYTES = 2**22


async def call(
    process: ProcessArgument,
    name: str,
    value: str = "null",
    *,
    key: str | None = None,
    timeout: str | None = None,
    context: str | None = None,
    who: Who = "",
    why: Why = "",
    json: Json = False,
    url: Url = DEFAULT_URL,
) -> int:
    """Ask a running process a question, and print its answer.

    Parameters
    ----------
    name
        The call's name, as in receive("quote", Call[Quote]).
    value
        The question's value, read as JSON, or else as text.
    key
        Your own id of the question: asked again with the same key, you get the same answer.
    timeout
        Wait no longer than this: 90s, 15m. The question stays; ask again with its key to get the answer.
    context
        What goes with it, as a JSON object: '{"tenant": "acme"}'.
    """
    given = None if context is None else plain(context)
    seconds = None if timeout is None else text.seconds_of(timeout)
    async with connected(url) as engine:
        row = await process_named(engine, process)
        try:
            answer = await engine.process(row.id).call(
                name, plain(value), key=key, timeout=seconds, who=who or user(), why=why, origin=ORIGIN, context=given
            )
        except TimeoutError as error:
            complain(str(error))
            return exit_code.FAILED
    if json:
        output.show_json({"id": id_text(row.id), "answer": answer})
    else:
        print(text.value(answer, _ANSWER_BYTES))
    return exit_code.DONE
