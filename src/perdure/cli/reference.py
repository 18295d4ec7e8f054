"""A reference: how a person names a process on the command line."""

from __future__ import annotations

from perdure.engine import Engine
from perdure.errors import InvalidKey, ProcessNotFound
from perdure.kernel.names import id_bytes, id_text
from perdure.kernel.process import Process
from perdure.store.base import Search

_SEVERAL = 5


async def process_named(engine: Engine, text: str) -> Process:
    """The process with that id, that key, or that ``kind:key``; raises ProcessNotFound, or InvalidKey if several."""
    id = _id(text)
    found = [] if id is None else await engine.store.search(Search(ids=(id,)))
    if not found:  # a key may look like an id
        found = await engine.store.search(Search(key=text, limit=_SEVERAL))
    kind, colon, key = text.partition(":")
    if colon and not found:
        found = await engine.store.search(Search(kind=kind, key=key, limit=_SEVERAL))
    if not found:
        raise ProcessNotFound(f"no process has the id or key {text!r:.200}; `perdure ps` lists what there is")
    if len(found) > 1:
        choice = ", ".join(f"{process.kind}:{process.key}" for process in found)
        raise InvalidKey(f"the key {text!r:.200} belongs to several processes; name one of {choice}")
    return found[0]


def reference_to(process: Process) -> str:
    """How to name a process so that people recognise it: kind and key, or kind and id."""
    return f"{process.kind} {process.key or id_text(process.id)}"


def _id(text: str) -> bytes | None:
    try:
        return id_bytes(text)
    except InvalidKey:
        return None
