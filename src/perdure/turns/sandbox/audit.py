"""The audit hook, which refuses files, sockets, threads and other programs to code that is in a turn."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from perdure.errors import WorkflowMisuse
from perdure.turns.current import current_turn

_EVENTS = {
    "": "open",
    "builtins": "input",
    "fcntl": "fcntl flock ioctl lockf",
    "ftplib": "connect sendcmd",
    "glob": "glob",
    "http.client": "connect send",
    "imaplib": "open send",
    "os": "chdir chflags chmod chown exec fork forkpty fwalk getxattr kill killpg link listdir listxattr lockf mkdir "
    "posix_spawn remove removexattr rename rmdir scandir setxattr spawn startfile symlink system truncate utime walk",
    "pathlib.Path": "glob rglob",
    "poplib": "connect putline",
    "pty": "spawn",
    "shutil": "chown copyfile copymode copystat copytree make_archive move rmtree unpack_archive",
    "signal": "pthread_kill",
    "smtplib": "connect send",
    "socket": "__new__ bind connect getaddrinfo gethostbyaddr gethostbyname gethostname getnameinfo getservbyname "
    "getservbyport sendmsg sendto sethostname",
    "sqlite3": "connect",
    "subprocess": "Popen",
    "tempfile": "mkdtemp mkstemp",
    "time": "sleep",
    "urllib": "Request",
    "webbrowser": "open",
    "_thread": "start_joinable_thread start_new_thread",
}
REFUSED = frozenset(f"{room}.{name}".lstrip(".") for room, names in _EVENTS.items() for name in names.split())
"""The audit events that no turn may cause."""

IMPORTERS = frozenset({"_frozen_importlib", "_frozen_importlib_external", "importlib", "zipimport"})
READERS = IMPORTERS | {
    "bdb",
    "coverage",
    "linecache",
    "logging",
    "pdb",
    "tokenize",
    "traceback",
    "warnings",
    "zoneinfo",
}
"""Modules that may use files in a turn: imports, stack traces, logging, time zones and debuggers."""

_BENEATH = "perdure.turns.loop"
"""The module that calls all code of a turn. What has called this module is the program, and not the turn."""


def watch() -> None:
    """Refuse these events in every turn from now on; an audit hook cannot be removed."""
    sys.addaudithook(_hear)


def _hear(event: str, args: tuple[Any, ...]) -> None:
    if event in REFUSED and current_turn() is not None and not _reading(args):
        shown = ", ".join(repr(arg) for arg in args if isinstance(arg, str | bytes | int))
        raise WorkflowMisuse(
            f"workflow code did what belongs in a step: {event}({shown:.200}). Move it into a function marked @step."
        )


def _reading(args: tuple[Any, ...]) -> bool:
    """Whether a module that may read files is at work; ZoneInfo opens its file in C and is recognised by the path."""
    if called_by(READERS):
        return True
    zones = getattr(sys.modules.get("zoneinfo"), "TZPATH", ())
    return bool(zones) and str(args[:1])[2:].startswith(tuple(zones))


def called_by(modules: frozenset[str]) -> bool:
    """Whether the code of this turn was called by one of these modules: by it in the turn, not the turn by it.

    A program that is run by a debugger or imported by another one has such modules beneath each of its turns.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__") or ""
        if name == _BENEATH:
            return False
        if name.partition(".")[0] in modules:
            return True
        frame = frame.f_back
    return False
