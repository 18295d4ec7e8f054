"""How every command ends: the exit codes, and which error ends a command with which."""

from __future__ import annotations

from perdure.errors import InvalidInput, PerdureError, UnreadablePayload
from perdure.runtime.os_process import AT_ONCE, EXIT_HUNG

DONE = 0
"""The command was carried out."""
FAILED = 1
"""The command could not be carried out, or the process that it waited for has failed."""
USAGE = 2
"""The command line is wrong: an unknown command or option, or a value that does not fit."""
STANDS_STILL = 3
"""Of ``explain``: the command was carried out, and the process stands still until somebody does something."""
HUNG = EXIT_HUNG
"""A worker has ended itself, because code of a process blocked its event loop."""
WORN_OUT = 75
"""A worker has ended itself, because it was short of threads, descriptors or memory and did not recover."""
CANNOT_START = 78
"""A worker of a pool cannot start: of no use to try again if no other could before. Only its parent sees this code."""
INTERRUPTED = AT_ONCE
"""The command was interrupted with Ctrl-C, or a worker was told three times to stop, or twice and did not in time."""


def of(error: PerdureError) -> int:
    """The exit code of a command that was ended by this error."""
    wrong = isinstance(error, InvalidInput) and not isinstance(error, UnreadablePayload)
    return USAGE if wrong else FAILED
