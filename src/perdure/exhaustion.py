"""Exhaustion: which errors say that the system has refused a thread, a descriptor, memory or a child OS process.

Such an error is a shortage of the worker that meets it, not a fault of the process it was working on.
"""

from __future__ import annotations

from errno import EAGAIN, EMFILE, ENFILE, ENOBUFS, ENOMEM

THREADS = "threads"
DESCRIPTORS = "descriptors"
MEMORY = "memory"
CHILDREN = "child OS processes"

_RESOURCES = {EMFILE: DESCRIPTORS, ENFILE: DESCRIPTORS, ENOMEM: MEMORY, ENOBUFS: MEMORY}
_NO_THREAD = "can't start new thread"  # CPython has no type and no number for it
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
    return THREADS if isinstance(error, RuntimeError) and str(error).startswith(_NO_THREAD) else None


def exhausted_in_step(error: BaseException) -> str | None:
    """The same for the error that a user's step has raised, and for its causes; memory is the step's own affair."""
    link: BaseException | None = error
    for _ in range(_LINKS):
        if link is None:
            return None
        if isinstance(link, BaseExceptionGroup) and link.exceptions:
            link = link.exceptions[0]
        resource = exhausted(link)
        if resource in (DESCRIPTORS, THREADS):
            return resource
        link = link.__cause__ or link.__context__
    return None
