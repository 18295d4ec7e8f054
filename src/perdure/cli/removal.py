"""Removal at the terminal: processes are taken away before retention does, or give back their keys."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from perdure.cli.commands import command_each
from perdure.cli.options import DEFAULT_URL, Json, ProcessArguments, Url, Who, Why
from perdure.client.handle import Handle

key = App(name="key", help="Release the keys of processes that have ended.", help_format="plaintext")


async def rm(
    process: ProcessArguments,
    *,
    force: Annotated[bool, Parameter(negative="")] = False,
    who: Who = "",
    why: Why = "",
    json: Json = False,
    url: Url = DEFAULT_URL,
) -> int:
    """Remove processes that have ended, with their histories.

    Nothing of them is left, and their keys are free again: a start that is
    sent once more with the same key begins a new process.

    Parameters
    ----------
    force
        Terminate those that have not ended: nothing of theirs is cleaned up or undone, and the list of what was owed is
        lost with them.
    """
    return await command_each(
        process, _forced if force else Handle.remove, "removed", who=who, why=why, url=url, json=json
    )


@key.command
async def release(
    process: ProcessArguments, *, who: Who = "", why: Why = "", json: Json = False, url: Url = DEFAULT_URL
) -> int:
    """Give back the keys of processes that have ended.

    The processes stay, and are found by their ids. A start that is sent once
    more with such a key begins a new process: make sure that no client
    repeats the old one.
    """
    answer = "its key is released"
    return await command_each(process, Handle.release_key, answer, who=who, why=why, url=url, json=json)


async def _forced(handle: Handle[object], *, who: str, why: str, origin: str) -> None:
    await handle.remove(force=True, who=who, why=why, origin=origin)
