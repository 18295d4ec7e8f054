"""Everything that Perdure raises, drawn as one tree; each text ends with what to do next.

::

    PerdureError
    ├── DefinitionError        a workflow or step is declared wrongly (raised when it is defined)
    │   └── UnknownKind        no workflow with that name is known here
    ├── InvalidInput           a value from outside was refused at the door; nothing was stored
    │   ├── PayloadError       a value cannot be stored as a payload, or does not fit its type
    │   │   ├── PayloadTooLarge    a payload is over its limit
    │   │   └── UnreadablePayload  a stored payload cannot be opened: no key or codec, or it was changed
    │   ├── InvalidKey         a key or name is empty, too long or not printable
    │   └── InvalidUrl         a store's URL cannot be understood
    ├── KeyConflict            the key is taken by a process that was started with another input
    ├── InboxFull              the process's inbox is full of waiting signals and calls; this one was refused
    ├── ProcessNotFound        no process has that id or key
    ├── ScheduleNotFound       there is no schedule of that name
    ├── StreamNotFound         there is no event stream of that name
    ├── NothingPublished       the process has published no value under that name (yet)
    ├── CallRefused            the process has answered a call with an error
    ├── CallUnanswered         the process has ended, or waits for a person, and has not answered the call
    ├── IllegalMove            the command does not fit the process's status
    ├── LeadershipLost         this program does not lead any more; its work was cancelled
    ├── ArchiveUnwritable      the folder of a rule of retention cannot be written; nothing was removed by that rule
    ├── ProcessError           what ``result()`` raises when the process did not complete
    │   ├── ProcessFailed      the workflow raised
    │   ├── ProcessCancelled   the process was cancelled or terminated
    │   └── ProcessBroken      the process waits for a person
    ├── StepError              a step failed for good (raised inside the workflow)
    │   ├── StepTimeout        an attempt ran over its deadline
    │   └── StepOutcomeUnknown it is not known whether a step that runs at most once was done
    ├── StepCrashed            an attempt of a hard step failed because its child OS process died
    ├── Permanent              raised *by a step*: do not try again
    ├── Unavailable            raised *by a step*: what it depends on cannot serve now; opens the step's breaker
    ├── WorkflowMisuse         workflow code did what only a step may do
    ├── HistoryMisfit          the recorded history does not fit the code
    └── StoreError             the store refused or could not be used
        ├── StoreUnavailable   the store cannot be reached now; trying again later is right
        │   ├── Overloaded     more starts and signals wait to be written than an engine keeps in memory
        │   ├── StoreFull      the disk or the database is full
        │   └── StoreRegressed the server is behind what this engine has seen of its database
        ├── BadRecord          the database refused the data of a batch
        ├── DamagedRecord      records of a process cannot be read, or some are missing
        ├── NewerRecord        a newer Perdure has written a record that this one does not know
        ├── StoreReadOnly      the file or database cannot be written
        ├── StoreTooNew        the database was made by a newer Perdure
        └── StoreTooOld        the database must be migrated first
"""

from __future__ import annotations

from datetime import timedelta

__all__ = [
    "ArchiveUnwritable",
    "BadRecord",
    "CallRefused",
    "CallUnanswered",
    "DamagedRecord",
    "DefinitionError",
    "HistoryMisfit",
    "IllegalMove",
    "InboxFull",
    "InvalidInput",
    "InvalidKey",
    "InvalidUrl",
    "KeyConflict",
    "LeadershipLost",
    "NewerRecord",
    "NothingPublished",
    "Overloaded",
    "PayloadError",
    "PayloadTooLarge",
    "PerdureError",
    "Permanent",
    "ProcessBroken",
    "ProcessCancelled",
    "ProcessError",
    "ProcessFailed",
    "ProcessNotFound",
    "ScheduleNotFound",
    "StepCrashed",
    "StepError",
    "StepOutcomeUnknown",
    "StepTimeout",
    "StoreError",
    "StoreFull",
    "StoreReadOnly",
    "StoreRegressed",
    "StoreTooNew",
    "StoreTooOld",
    "StoreUnavailable",
    "StreamNotFound",
    "Unavailable",
    "UnknownKind",
    "UnreadablePayload",
    "WorkflowMisuse",
]


class PerdureError(Exception):
    """The root of everything that Perdure raises on purpose."""


class DefinitionError(PerdureError):
    """A workflow or step is declared wrongly; raised when it is defined, not when it runs."""


class UnknownKind(DefinitionError):
    """No workflow with that name is known to this engine or worker."""


class InvalidInput(PerdureError, ValueError):
    """A value from outside was refused at the door; nothing was stored."""


class PayloadError(InvalidInput):
    """A value cannot be stored as a payload, or a stored one does not fit the type asked for."""


class PayloadTooLarge(PayloadError):
    """A payload is larger than its limit."""


class UnreadablePayload(PayloadError):
    """A stored payload cannot be opened here: its key or codec is not known, it was changed, or its blob is gone."""


class InvalidKey(InvalidInput):
    """A key or a name is empty, too long or not printable."""


class InvalidUrl(InvalidInput):
    """A store's URL cannot be understood."""


class KeyConflict(PerdureError):
    """The key belongs to a process that was started with another input."""


class ProcessNotFound(PerdureError, LookupError):
    """No process has that id or key."""


class ScheduleNotFound(PerdureError, LookupError):
    """There is no schedule of that name, or not any more."""


class StreamNotFound(PerdureError, LookupError):
    """There is no event stream of that name, or not any more."""


class InboxFull(PerdureError):
    """The process's inbox holds as many waiting signals and calls as it may; this one was not sent."""


class NothingPublished(PerdureError, LookupError):
    """The process has published no value under that name, or none yet."""


class CallRefused(PerdureError):
    """The process has answered a call with an error: ``type`` names its class, ``detail`` is its text."""

    def __init__(self, message: str, *, type: str = "", detail: str = "") -> None:
        super().__init__(message)
        self.type = type
        self.detail = detail


class CallUnanswered(PerdureError):
    """The process has ended, or cannot go on without a person, and has not answered the call."""


class IllegalMove(PerdureError):
    """The command does not fit the status that the process has."""


class LeadershipLost(PerdureError):
    """The lease of a leader could not be renewed, or was released: its work was cancelled, and another may lead now."""


class ArchiveUnwritable(PerdureError):
    """The folder into which a rule of retention archives cannot be written; all that is not in it is still stored."""


class ProcessError(PerdureError):
    """What ``result()`` raises when a process did not complete; ``type`` names the original error.

    ``detail`` is what the process recorded: the error's text, at most 4 KiB of it. ``undone`` are the steps that it has
    undone, in that order (``charge:1``: name and place); ``owed`` are the steps whose undo has not run.
    """

    def __init__(
        self,
        message: str,
        *,
        type: str = "",
        detail: str = "",
        undone: tuple[str, ...] = (),
        owed: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.type = type
        self.detail = detail
        self.undone = undone
        self.owed = owed

    @property
    def compensated(self) -> bool:
        """Whether steps were undone, and none is left to undo."""
        return bool(self.undone) and not self.owed


class ProcessFailed(ProcessError):
    """The workflow raised an error and nothing caught it."""


class ProcessCancelled(ProcessError):
    """The process was cancelled or terminated."""


class ProcessBroken(ProcessError):
    """The process cannot go on without a person."""


class StepError(PerdureError):
    """A step failed for good; raised inside the workflow, where it may be caught.

    ``step`` is the step's name, ``type`` the name of the error's class, ``attempts`` how often it was tried, and
    ``failure`` what was recorded. If the step declares that class (``@step(raises=CardRefused)``), this is also an
    instance of it, with the text of the original error.
    """

    # Of the class too: a class derived from this one may not call its constructor, and a declared class may have
    # properties of these names, which an attribute of this one comes before.
    step: str = ""
    type: str = ""
    attempts: int = 1
    failure: object = None

    def __init__(
        self, message: str, *, step: str = "", type: str = "", attempts: int = 1, failure: object = None
    ) -> None:
        Exception.__init__(self, message)  # a declared class may need other arguments for its own
        self.step = step
        self.type = type
        self.attempts = attempts
        self.failure = failure

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class StepTimeout(StepError, TimeoutError):
    """Every attempt of a step ran over its deadline, or its total time was spent."""


class StepOutcomeUnknown(StepError):
    """A step that runs at most once has begun, and nobody knows whether it was done: it is not run again.

    Its worker died or lost its lease, its OS process died, or it ran over its deadline. Ask the other system, then set
    the step's result, or retry the process to run the step once more.
    """


class StepCrashed(PerdureError):
    """An attempt of a hard step failed because its child OS process died, or could not run the step.

    Name it in ``Retry(never=...)`` if no other attempt must follow.
    """


class Permanent(PerdureError):
    """Raised by a step's own code: this error will not go away, do not try again."""


class Unavailable(PerdureError):
    """Raised by a step's own code: what it depends on has said that it cannot serve now; the breaker opens at once.

    ``retry_after`` (seconds or a timedelta) is for how long it will not, if it has said so (the header ``Retry-After``
    of HTTP 429 and 503): the breaker stays open for at least as long, up to its ``longest``. Another attempt follows in
    its own time.
    """

    def __init__(self, message: str = "", *, retry_after: float | timedelta | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class WorkflowMisuse(PerdureError):
    """Workflow code did what only a step may do (I/O, blocking, the wall clock, randomness)."""


class HistoryMisfit(PerdureError):
    """The recorded history does not fit the code; both sides are shown.

    ``recorded`` says what the history holds, ``code`` what the code asked for at that place.
    """

    def __init__(self, recorded: str, code: str) -> None:
        super().__init__(f"the history recorded {recorded}, but the code {code}")
        self.recorded = recorded
        self.code = code


class StoreError(PerdureError):
    """The store refused a request or could not be used."""


class StoreUnavailable(StoreError):
    """The store cannot be reached now; whether a write under way was applied is unknown.

    Every write of the store protocol may be sent again unchanged: it is applied at most once. ``unread`` says that a
    claim was applied, and what its rows hold could not be read: a claim of fewer rows may succeed.
    """

    unread = False


class Overloaded(StoreUnavailable):
    """More starts and signals wait to be written than an engine keeps in memory; this one was not taken."""


class BadRecord(StoreError):
    """The database refused a record of a batch: nothing of it was applied.

    If the batch was written in parts, earlier parts may have been applied: sending it again, whole or halved, applies
    the rest and gives every record the same answer as the first time.
    """


class DamagedRecord(StoreError):
    """Records of a process cannot be read, or some are missing; the text says which."""


class NewerRecord(StoreError):
    """A newer Perdure has written a record of a process, and this one does not know what it means."""


class StoreReadOnly(StoreError):
    """The file or the database cannot be written."""


class StoreFull(StoreUnavailable):
    """The disk or the database is full; work goes on by itself once there is room."""


class StoreRegressed(StoreUnavailable):
    """The server is an old primary, or has lost the last commits in a fail-over; nothing was done."""


class StoreTooNew(StoreError):
    """The database was made by a newer Perdure than this one."""


class StoreTooOld(StoreError):
    """The database must be migrated before it can be used."""
