"""Advice: what a person can do about a process, by its status and the type of its error.

It is added where a process is shown, and is never recorded: which command helps depends on the status that the process
has by then, and other records quote a recorded error.
"""

from __future__ import annotations

from perdure.kernel.process import Status

_BROKEN = {
    "HistoryMisfit": "bring back code that fits the history",
    "Hung": "make the blocking call a sync step, which runs in a thread",
    "Poison": "look at what its step does",
}
_COMPENSATED = "what it had done was undone, so it cannot go on; start a new run: `perdure restart{id}`"
_UNKNOWN = (
    "find out whether it was done; then `perdure set-result{id}` gives the step its result, or `perdure retry{id}` "
    "runs it once more"
)
_HELD = {"HistoryTooLong": "have it continue as new, or let it go on: `perdure retry{id}`"}


def advice(status: Status, type: str = "", id: str = "", *, compensated: bool = False) -> str:
    """What to do about a process with that status and an error of that type; commands name the ``id``, if given.

    ``compensated`` says that the process has failed and its steps were undone: it cannot go on from any of them.
    """
    if status is Status.BROKEN:
        what = f"{_BROKEN.get(type, 'fix the cause')}, then `perdure retry{{id}}`; or `perdure terminate{{id}}`"
    elif status is Status.HELD:
        what = _HELD.get(type, "`perdure resume{id}` lets it go on; `perdure terminate{id}` ends it")
    elif status is Status.FAILED:
        what = "`perdure retry{id}` goes on from its last good event"
        if compensated:
            what = _COMPENSATED
        elif type == "StepOutcomeUnknown":
            what = _UNKNOWN
    else:
        what = ""
    return what.format(id=f" {id}" if id else "")
