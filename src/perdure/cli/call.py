"""A call: a question to a running process, whose answer is printed."""

from __future__ import annotations

from perdure.cli import page, text
from perdure.cli.argument import plain
from perdure.cli.connection import ORIGIN, connected, user
from perdure.cli.line import complain
from perdure.cli.option import DEFAULT_URL, Json, Reference, Url, Who, Why
from perdure.cli.reference import process_named
from perdure.kernel.names import id_text

_ANSWER_BYTES = 2**22


async def call(
    process: Reference,
    name: str,
    value: str = "null",
    *,
    key: str | None = None,
    timeout: str | None = None,
    who: Who = "",
    why: Why = "",
    json: Json = False,
    url: Url = DEFAULT_URL,
) -> int:
    """Ask a running process something, and print its answer.

    Parameters
    ----------
    name
        The call's name, as in receive("quote", Call[Quote]).
    value
        What it is asked, read as JSON, or else as text.
    key
        Asked again with the same key, it is not put again, but gets the answer to the first time.
    timeout
        Wait no longer than this: 90s, 15m. The question stays; its key gets the answer later.
    """
    seconds = None if timeout is None else text.seconds_of(timeout)
    async with connected(url) as engine:
        row = await process_named(engine, process)
        try:
            answer = await engine.call(
                row.id, name, plain(value), key=key, timeout=seconds, who=who or user(), why=why, origin=ORIGIN
            )
        except TimeoutError as error:
            complain(str(error))
            return 1
    if json:
        page.show_json({"id": id_text(row.id), "answer": answer})
    else:
        print(text.value(answer, _ANSWER_BYTES))
    return 0
