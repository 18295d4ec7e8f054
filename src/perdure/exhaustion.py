"""Exhaustion: which errors say that the system has refused a thread, a descriptor, memory or a child OS process.

Such an error is a shortage of the worker that meets it, not a fault of the process it was working on. So is the error
of an executor of Python's that was shut down because the program ends.
"""

from __future__ import annotations

import threading
from errno import EAGAIN, EMFILE, ENFILE, ENOBUFS, ENOMEM

THREADS = "threads"
DESCRIPTORS = "descriptors"
MEMORY = "memory"
CHILDREN = "child OS processes"
EXECUTORS = "executors"

_RESOURCES = {EMFILE: DESCRIPTORS, ENFILE: DESCRIPTORS, ENOMEM: MEMORY, ENOBUFS: MEMORY}
_NO_THREAD = "can't start new thread"  # CPython has no type and no number for it, nor for these
_ENDING = (
    "cannot schedule new futures after",
    "can't register atexit after shutdown",
    "can't create new thread at interpreter shutdown",
    "can't fork at interpreter shutdown",
)
_LINKS = 10
"""At most so many causes of an error are examined."""


def exhausted(error: BaseException, *, spawning: bool = False) -> str | None:
    """The resource that the system has refused, or None. EAGAIN counts only while a child OS process is started."""
    if isinstance(error, MemoryError):
        return MEMORY
    if isinstance(error, OSError):
        if spawning and error.errno == EAGAIN:
            return CHILDREN
        return None if error.errno is None else _RESOURCES.get(error.errno)
    if not isinstance(error, RuntimeError):
        return None
    if str(error).startswith(_NO_THREAD):
        return THREADS
    return EXECUTORS if str(error).startswith(_ENDING) and program_ends() else None


def program_ends() -> bool:
    """Whether the main thread has ended: then Python has shut its executors down, and may refuse new threads."""
    return getattr(threading, "_SHUTTING_DOWN", False) or not threading.main_thread().is_alive()


def exhausted_in_step(error: BaseException) -> str | None:
    """The same for the error that a user's step has raised, and for its causes; memory is the step's own affair."""
    link: BaseException | None = error
    for _ in range(_LINKS):
        if link is None:
            return None
        if isinstance(link, BaseExceptionGroup) and link.exceptions:
            link = link.exceptions[0]
        resource = exhausted(link)
        if resource in (DESCRIPTORS, THREADS, EXECUTORS):
            return resource
        link = link.__cause__ or link.__context__
    return None
