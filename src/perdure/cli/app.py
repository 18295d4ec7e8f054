"""The program ``perdure``: its commands in groups, and how the outcome of each becomes an exit code."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from inspect import iscoroutine
from typing import Any, Literal

from cyclopts import App, CycloptsError, Group

from perdure.cli import exit_code
from perdure.cli.plain_output import complain
from perdure.cli.version import version
from perdure.errors import PerdureError

app = App(
    name="perdure",
    help="Durable processes that right themselves: run workers, look at processes, and give them commands.\n\n"
    "When something is wrong, begin with `perdure health`; "
    "if one process does not move, with `perdure explain PROCESS`.",
    help_epilogue="Exit codes: 0 done; 1 not done, or the process failed; 2 wrong usage; 3 (explain) it stands still.",
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
    print(whole_app().generate_completion(shell=shell).rstrip())


GROUPS = {
    "Starting": "start.start commands.signal commands.call",
    "Looking": "inspect.ps inspect.show explain.explain inspect.history inspect.trace tree.tree values.values"
    " failures.board failures.failures search.search workers.workers top.top health.health",
    "Repairing": "commands.retry commands.hold commands.resume commands.restart commands.restart_from commands.fork"
    " edit.edit commands.set_result commands.skip commands.cancel commands.terminate commands.fail commands.repair"
    " adjust.move adjust.set_priority adjust.set_deadline"
    " operation.operation check.check removal.rm removal.key",
    "Running": "worker.worker worker.demo rehearsal.rehearse policy.policy",
    "Database": "worker.migrate archive.export archive.import_ queue.queue kind.kind breaker.breaker outage.outage"
    " alert.alert leader.leader retention.retention schedule.schedule stream.stream database.recovery database.clock",
    "Program": "app.completion",
}
"""The commands in groups, each by its file and the name that it has there."""


def _commands() -> dict[str, tuple[str, Group, int]]:
    """Each command as it is typed, with the place of its code, its group, and its place in that group."""
    groups = [(Group(title, sort_key=place), paths.split()) for place, (title, paths) in enumerate(GROUPS.items())]
    return {
        path.partition(".")[2].rstrip("_").replace("_", "-"): (path, group, number)
        for group, paths in groups
        for number, path in enumerate(paths)
    }


COMMANDS = _commands()

for option in ("--help", "--version"):  # they stand in the last group
    app[option].group = (COMMANDS["completion"][1],)


def app_for(tokens: Sequence[str]) -> App:
    """The program with the command that is named first: what it costs to import all of them is seen at each start.

    If none is named, or one that does not exist, all are there.
    """
    for name in tokens[:1] if tokens and tokens[0] in COMMANDS else COMMANDS:
        if name in app:
            continue
        path, group, number = COMMANDS[name]
        file, _, verb = path.partition(".")
        command = getattr(import_module(f"perdure.cli.{file}"), verb)
        if isinstance(command, App):
            command.group, command.sort_key = (group,), number
            app.command(command)
        else:
            app.command(command, group=group, sort_key=number)
    return app


def whole_app() -> App:
    """The program with all commands."""
    return app_for(())


def run(tokens: Sequence[str]) -> int:
    """Carry out one command line; the answer is its exit code, see :mod:`perdure.cli.exit_code`."""
    for name in [name for name, value in os.environ.items() if name.startswith("PERDURE_") and not value]:
        del os.environ[name]  # set, but to nothing: as if it were not set
    try:
        command, bound, _ = app_for(tokens).parse_args(list(tokens), print_error=False, exit_on_error=False)
    except CycloptsError as error:
        complain(f"{error} `perdure --help` lists all commands.")
        return exit_code.USAGE
    try:
        if "console" in bound.arguments:  # the command line's own library prints: --help, --version
            bound.arguments["console"] = _page()
        return _outcome(command(*bound.args, **bound.kwargs))
    except PerdureError as error:
        complain(str(error))
        return exit_code.of(error)
    except KeyboardInterrupt:
        return exit_code.INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has ended: `perdure ps | head`
        return exit_code.DONE


def _page() -> Any:
    from perdure.cli.output import PageConsole

    return PageConsole()


def _outcome(answer: Any) -> int:
    code = asyncio.run(_awaited(answer)) if iscoroutine(answer) else answer
    sys.stdout.flush()
    return code if isinstance(code, int) else exit_code.DONE


async def _awaited(answer: Any) -> Any:
    return await answer
