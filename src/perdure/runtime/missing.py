"""A process that cannot be replayed begins again by itself, if there is a rule for its kind; else it is parked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from perdure.errors import PerdureError, StoreError
from perdure.kernel.commit import CommitAnswer, Verdict
from perdure.kernel.event import Event
from perdure.kernel.missing import begun_again
from perdure.kernel.names import id_text
from perdure.logs import logger
from perdure.runtime import farewell

if TYPE_CHECKING:
    from perdure.runtime.holder import Holder
    from perdure.runtime.instance import Instance

log = logger("recovery")


def restarted(
    holder: Holder, instance: Instance, history: Sequence[Event], error: Exception, park: Callable[[], None]
) -> bool:
    """Whether a process that was just claimed begins again, since it cannot be replayed; False if it may not.

    If the database refuses that, it is to ``park``.
    """
    process, parts = instance.process, holder.parts
    rule = parts.missing.get(process.kind)
    commit = None if rule is None else begun_again(process, history, error, rule, now=parts.time.now())
    if commit is None:
        return False

    def answered(answer: CommitAnswer | StoreError) -> None:
        # If we die here it begins again, or its lease lapses and the worker that takes it over decides as we did.
        if isinstance(answer, PerdureError):
            log.error("process %s could not be begun again: %s", id_text(process.id), answer)
            park()
        elif answer.verdict is Verdict.APPLIED:
            parts.telemetry.count("processes_begun_again")
            text = "process %s (%s) begins again by itself, since it cannot be replayed: %s"
            log.warning(text, id_text(process.id), process.kind, error)
            holder.events.posted(commit)
            holder.events.due(parts.time.now())

    farewell.take_leave(holder, instance, commit, lambda commit: parts.committer.commit(commit, answered))
    return True
