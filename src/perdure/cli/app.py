"""The program ``perdure``: its commands in groups, and how the outcome of each becomes an exit code."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from inspect import iscoroutine
from typing import Any, Literal

from cyclopts import App, CycloptsError, Group

from perdure.cli import archive, commands, exit_code, inspect, removal, worker
from perdure.cli.breaker import breaker
from perdure.cli.check import check
from perdure.cli.commands import call
from perdure.cli.database import clock, recovery
from perdure.cli.edit import edit
from perdure.cli.explain import explain
from perdure.cli.failures import board, failures
from perdure.cli.health import health
from perdure.cli.leader import leader
from perdure.cli.operation import operation
from perdure.cli.outage import outage
from perdure.cli.plain_output import complain
from perdure.cli.policy import policy
from perdure.cli.queue import queue
from perdure.cli.rehearsal import rehearse
from perdure.cli.schedule import schedule
from perdure.cli.search import search
from perdure.cli.start import start
from perdure.cli.stream import stream
from perdure.cli.top import top
from perdure.cli.tree import tree
from perdure.cli.values import values
from perdure.cli.version import version
from perdure.cli.workers import workers
from perdure.errors import PerdureError

app = App(
    name="perdure",
    help="Durable processes that right themselves: run workers, look at processes, and give them commands.",
    help_epilogue="Exit codes: 0 done; 1 not done, or the process failed; 2 wrong usage; 3 trouble was found.",
    help_format="plaintext",
    version=version,
)


def completion(shell: Literal["bash", "zsh", "fish"]) -> None:
    """Print the script for completion in bash, zsh or fish.

    bash: put eval "$(perdure completion bash)" into ~/.bashrc.

    fish: put perdure completion fish | source into config.fish.

    zsh: write it to a file _perdure in a folder of $fpath.

    Parameters
    ----------
    shell
        The shell that is to complete.
    """
    print(app.generate_completion(shell=shell).rstrip())


GROUPS: Mapping[str, Sequence[App | Callable[..., Any]]] = {
    "Starting": (start, commands.signal, call),
    "Looking": (
        inspect.ps,
        inspect.show,
        explain,
        inspect.history,
        inspect.trace,
        tree,
        values,
        board,
        failures,
        search,
        workers,
        top,
        health,
    ),
    "Repairing": (
        commands.retry,
        commands.hold,
        commands.resume,
        commands.restart,
        commands.restart_from,
        commands.fork,
        edit,
        commands.set_result,
        commands.skip,
        commands.cancel,
        commands.terminate,
        commands.fail,
        commands.repair,
        operation,
        check,
        removal.rm,
        removal.key,
    ),
    "Running": (worker.worker, worker.demo, rehearse, policy),
    "Database": (
        worker.migrate,
        archive.export,
        archive.import_,
        queue,
        breaker,
        outage,
        leader,
        schedule,
        stream,
        recovery,
        clock,
    ),
    "Program": (completion,),
}
for place, (title, verbs) in enumerate(GROUPS.items()):
    group = Group(title, sort_key=place)
    for number, verb in enumerate(verbs):
        if isinstance(verb, App):
            verb.group, verb.sort_key = (group,), number
            app.command(verb)
        else:
            app.command(verb, group=group, sort_key=number)
for option in ("--help", "--version"):  # they stand in the last group
    app[option].group = (group,)


def run(tokens: Sequence[str]) -> int:
    """Carry out one command line; the answer is its exit code, see :mod:`perdure.cli.exit_code`."""
    if not os.environ.get("PERDURE_URL"):
        os.environ.pop("PERDURE_URL", None)  # set, but to nothing: as if it were not set
    try:
        command, bound, _ = app.parse_args(list(tokens), print_error=False, exit_on_error=False)
    except CycloptsError as error:
        complain(f"{error} `perdure --help` lists all commands.")
        return exit_code.USAGE
    try:
        return _outcome(command(*bound.args, **bound.kwargs))
    except PerdureError as error:
        complain(str(error))
        return exit_code.of(error)
    except KeyboardInterrupt:
        return exit_code.INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has ended: `perdure ps | head`
        return exit_code.DONE


def _outcome(answer: Any) -> int:
    code = asyncio.run(_awaited(answer)) if iscoroutine(answer) else answer
    sys.stdout.flush()
    return code if isinstance(code, int) else exit_code.DONE


async def _awaited(answer: Any) -> Any:
    return await answer
