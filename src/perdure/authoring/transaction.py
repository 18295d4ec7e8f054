"""A transaction: what makes a step one whose effect and result are committed together, and what it cannot be then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perdure.errors import DefinitionError

if TYPE_CHECKING:
    from perdure.authoring.step import Step


def joint(step: Step[Any, Any], transaction: Any, hard: Any = False) -> bool:
    """Whether the step has a transaction of its own, as ``transaction`` asks for; raises DefinitionError."""
    if not isinstance(transaction, bool):
        raise DefinitionError(f"{step} has transaction={transaction!r:.100}. Write transaction=True, or leave it out.")
    if transaction and hard:
        raise DefinitionError(
            f"{step} is hard and has a transaction, but a cell has no connection to the store. Leave one of them out."
        )
    if transaction and step.away:
        raise DefinitionError(
            f"{step} is queued and has a transaction, but its result goes to a process that another worker holds. "
            "Leave one of them out, or queue a step before it."
        )
    return transaction


def unfit(step: Step[Any, Any], store: str) -> str | None:
    """Why the step cannot have a transaction on that ``store`` (``sqlite``, ``postgres``, or neither), or None."""
    if store == "postgres":
        if step.is_async:
            return None
        return (
            f"{step} has a transaction and is an ordinary function, but on PostgreSQL it gets a connection of asyncpg, "
            "whose calls are awaited. Write it as an `async def`."
        )
    if store == "sqlite":
        if not step.is_async:
            return None
        return (
            f"{step} has a transaction and is an `async def`, but on SQLite it gets one of sqlite3, whose calls "
            "block. Write it as an ordinary `def`, which runs in a thread."
        )
    return f"{step} has a transaction, which this store cannot share. Use PostgreSQL, or SQLite with a file."
