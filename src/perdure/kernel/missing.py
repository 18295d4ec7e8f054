"""What is missing: whether a process that cannot be replayed is parked as broken, or begun again by itself.

It cannot be replayed if records of it are missing or cannot be read, or if its history does not fit the code. By
default a person decides. A kind whose steps may safely be done again can have a rule instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from perdure.errors import DamagedRecord, DefinitionError, HistoryMisfit, PerdureError
from perdure.kernel.commit import Commit
from perdure.kernel.event import Event
from perdure.kernel.failure import safe_text
from perdure.kernel.names import check_name
from perdure.kernel.process import Process
from perdure.kernel.run import FIRST, opening_of, restarted
from perdure.kernel.transition import AUTOMATIC, Sender

MOST_RESTARTS = 100
SETTINGS = ("restart", "versions")
_WHY_BYTES = 500
_EXAMPLE = "Write, for the kind order: [missing.order] and, below it, restart = 2."


class MissingRule(Struct, frozen=True):
    """How often in a row a process of a kind is begun ``again`` by itself before it is parked.

    With ``versions`` those of a version that no live worker hosts are begun again too, with the version that new
    processes get.
    """

    again: int
    versions: bool = False


def rules_of(source: str, given: Any) -> dict[str, MissingRule]:
    """The rules that a source gives, by kind; raises DefinitionError."""
    if not isinstance(given, Mapping) or not all(isinstance(one, Mapping) for one in given.values()):
        raise DefinitionError(f"what {source} sets for missing records has no kinds. {_EXAMPLE}")
    found = {}
    for kind, settings in given.items():
        check_name(kind, "a kind")
        many, versions = settings.get("restart"), settings.get("versions", False)
        wrong = settings.keys() - set(SETTINGS) or type(versions) is not bool
        if wrong or type(many) is not int or not 1 <= many <= MOST_RESTARTS:
            raise DefinitionError(
                f"{source} sets {dict(settings)!r:.200} for missing records of {kind}. Give restart, a whole number "
                f"from 1 to {MOST_RESTARTS}, and perhaps versions = true. {_EXAMPLE}"
            )
        found[kind] = MissingRule(many, versions)
    return found


def begun_again(
    process: Process, history: Sequence[Event], error: BaseException, rule: MissingRule, *, now: int
) -> Commit | None:
    """The commit with which the process begins again; None if the rule, or what is known of it, does not allow that.

    Each begin in a row is counted in the opening of the run, so that one which helps nothing is not repeated for ever.
    If the opening is missing, it is not known with which arguments this run began.
    """
    if not isinstance(error, DamagedRecord | HistoryMisfit):
        return None
    try:
        opening = opening_of(history)
        if opening.automatic >= rule.again or (opening is FIRST and process.run > 1):
            return None
        why = safe_text(f"{type(error).__name__}: {error}", _WHY_BYTES)
        sender = Sender("perdure", why, AUTOMATIC)
        return restarted(process, history, sender, now=now, automatic=opening.automatic + 1)
    except PerdureError:  # a machine, which would lose its fields; or what must be known of the run cannot be read
        return None
