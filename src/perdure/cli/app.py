"""The program ``perdure``: its verbs, and how each outcome becomes an exit code and one line of text."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from inspect import iscoroutine
from typing import Any

from cyclopts import App, CycloptsError

from perdure.cli import commands, inspect, worker
from perdure.cli.commands import call
from perdure.cli.database import clock, recovery
from perdure.cli.plain_output import complain
from perdure.cli.queue import queue
from perdure.cli.start import start
from perdure.cli.tree import tree
from perdure.cli.values import values
from perdure.cli.version import version
from perdure.errors import PerdureError

WENT_WELL, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130

app = App(
    name="perdure",
    help="Durable processes that right themselves: run workers, see what processes do, and tell them what to do.",
    help_format="plaintext",
    version=version,
)
for verb in (
    worker.worker,
    start,
    inspect.ps,
    inspect.show,
    inspect.history,
    tree,
    values,
    commands.signal,
    call,
    commands.cancel,
    commands.terminate,
    commands.hold,
    commands.resume,
    commands.retry,
    commands.restart,
    commands.restart_from,
    commands.set_result,
    commands.skip,
    queue,
    recovery,
    clock,
    worker.migrate,
    worker.demo,
):
    app.command(verb)


def run(tokens: Sequence[str]) -> int:
    """Carry out one command line; the answer is the exit code: 0 done, 1 failed, 2 not understood."""
    if not os.environ.get("PERDURE_URL"):
        os.environ.pop("PERDURE_URL", None)  # set, but to nothing: as if it were not set
    try:
        command, bound, _ = app.parse_args(list(tokens), print_error=False, exit_on_error=False)
    except CycloptsError as error:
        complain(f"{error} `perdure --help` shows what there is.")
        return USAGE
    try:
        return _outcome(command(*bound.args, **bound.kwargs))
    except PerdureError as error:
        complain(str(error))
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads on: `perdure ps | head`
        return WENT_WELL


def _outcome(answer: Any) -> int:
    code = asyncio.run(_awaited(answer)) if iscoroutine(answer) else answer
    sys.stdout.flush()
    return code if isinstance(code, int) else WENT_WELL


async def _awaited(answer: Any) -> Any:
    return await answer
