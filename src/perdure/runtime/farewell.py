"""A farewell: a process that ends or begins again orders its children to end; very many hear of it before its commit.

One transaction with all the orders would be long, and would need the rows of all these children free at one moment. So
they are sent in portions; meanwhile the process is held here, its lease is renewed, and none of its code runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from perdure.futures import asked
from perdure.kernel.child import beforehand, portions, without_orders
from perdure.kernel.names import id_text
from perdure.logs import logger

if TYPE_CHECKING:
    from perdure.kernel.commit import Commit
    from perdure.kernel.message import Message, SendAnswer
    from perdure.runtime.holder import Holder
    from perdure.runtime.instance import Instance

log = logger("process")


def take_leave(holder: Holder, instance: Instance, commit: Commit, write: Callable[[Commit], None]) -> None:
    """Let a process go that was just claimed, and ``write`` its commit: at once, or when very many children were told.

    Nothing is written if another worker has the process by then, or if the orders cannot be sent: then its lease
    lapses, and the worker that takes it over decides again.
    """
    orders = beforehand(commit.sends)
    if orders:
        holder.replaying.add(instance)
        _tell(holder, instance, portions(orders), partial(write, replace(commit, sends=without_orders(commit.sends))))
    else:
        holder.drop(instance)
        write(commit)


def _tell(holder: Holder, instance: Instance, left: Iterator[Sequence[Message]], write: Callable[[], None]) -> None:
    """Send the next portion; after the last one, write."""
    if instance.gone:
        holder.replaying.discard(instance)
    elif portion := next(left, None):
        # If we die here some of the children were told: the worker that takes the process over tells all, each once.
        told = asyncio.gather(*(asked(holder.parts.committer.send, order) for order in portion))
        told.add_done_callback(partial(_told, holder, instance, left, write))
    else:
        _end(holder, instance)
        write()


def _told(
    holder: Holder,
    instance: Instance,
    left: Iterator[Sequence[Message]],
    write: Callable[[], None],
    portion: asyncio.Future[list[SendAnswer]],
) -> None:
    error = portion.exception()
    if error is None:
        _tell(holder, instance, left, write)
    else:
        log.error("process %s could not tell its children to end: %s", id_text(instance.process.id), error)
        _end(holder, instance)


def _end(holder: Holder, instance: Instance) -> None:
    holder.replaying.discard(instance)
    holder.drop(instance)
