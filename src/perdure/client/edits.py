"""Edits of a process by people: another input, other attributes, and other values for the fields of a machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.client import decision, validation
from perdure.client.orders import Orders


class Edits(Orders):
    """The part of a handle that edits; what all commands record and raise stands in ``client/commands.py``."""

    __slots__ = ()

    async def edit_input(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None = None,
        *,
        restart: bool = False,
        who: str = "",
        why: str = "",
        origin: str = "client",
    ) -> None:
        """Give a process other arguments: ``handle.edit_input(["A-17", 1300])``, or by name, as ``kwargs``.

        One that has not begun, since it is delayed, held or waits for a worker, stays so, and begins with them. One
        that has begun has recorded what the old ones have led to: with ``restart`` it begins again, as by
        :meth:`restart`. They are checked if this program knows the workflow. Raises IllegalMove without ``restart`` for
        a process that has begun, for a queued step and a machine that has begun; InvalidInput or PayloadError for
        arguments that do not fit.
        """
        sender = validation.sender(who, why, origin)
        arguments = validation.arguments(args, kwargs)
        await self._order(decision.edit_input(sender, self._parts.registry, arguments, restart=restart))

    async def edit_fields(
        self,
        values: Mapping[str, Any] | None = None,
        /,
        *,
        who: str = "",
        why: str = "",
        origin: str = "client",
        **named: Any,
    ) -> None:
        """Give fields of a held or broken machine other values: ``handle.edit_fields(balance=120, who="ann")``.

        ``values`` may name them too, also fields that are called like an option. The machine stays held or broken;
        one event keeps the old values and the new. They are checked if this program knows the class. A method that was
        under way when it was held, or that has failed, goes on with them from what it has recorded: if that does not
        fit, the machine breaks, and is repaired. Raises IllegalMove if it runs, has ended or is no machine that has
        begun; InvalidInput or PayloadError for a field that it does not have, or a value that does not fit.
        """
        sender = validation.sender(who, why, origin)
        changes = validation.fields({**(values or {}), **named})
        await self._order(decision.edit_fields(sender, self._parts.registry, changes))

    async def edit_attributes(
        self,
        values: Mapping[str, Any] | None = None,
        /,
        *,
        who: str = "",
        why: str = "",
        origin: str = "client",
        **named: Any,
    ) -> None:
        """Change what a process can be searched by: ``handle.edit_attributes({"stage": "late", "owner": None})``.

        None removes one; the others stay. A search finds it by them at once; they stay until its code sets these names
        again, as it does if it goes on from a place before the edit. One event keeps the old values and the new. Of a
        process that a worker has in hand, steps in flight begin again, under their keys. Raises IllegalMove if it has
        ended, or while a step runs that runs at most once; InvalidKey or PayloadError for what cannot be an attribute.
        """
        changes = validation.changed_attributes({**(values or {}), **named})
        await self._order(decision.edit_attributes(validation.sender(who, why, origin), changes))
