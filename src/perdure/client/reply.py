"""A reply address: whom a new process tells what becomes of it; a URL becomes a process that posts notices to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from perdure import limits
from perdure.authoring.webhook import checked, key_of, webhook
from perdure.client import validation
from perdure.errors import IllegalMove, InvalidInput
from perdure.kernel.notice import addressed
from perdure.kernel.plain import shown
from perdure.kernel.process import Process

if TYPE_CHECKING:
    from perdure.client.client import Client

T = TypeVar("T")


class ReplyAddresses:
    """Finds the processes behind reply addresses. Those used last are known here, and not looked for again."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._webhooks: dict[str, bytes] = {}
        self._found: dict[bytes, bytes] = {}

    async def given(self, process: Process, address: Any) -> Process:
        """A new process with its reply address; raises ProcessNotFound, InvalidInput, InvalidKey, PayloadTooLarge."""
        if is_url(address):
            return addressed(process, await self.webhook(address))
        receiver = receiver_of(address)
        if receiver not in self._found:
            await self._client.row(receiver)
            _remember(self._found, receiver, receiver)
        return addressed(process, receiver)

    async def webhook(self, url: Any) -> bytes:
        """The id of the process that posts to this URL, which is started if there is none.

        Raises InvalidInput, and IllegalMove if a person has ended that process.
        """
        validation.outside_a_turn()
        known = self._webhooks.get(checked(url))
        if known is None:
            handle = await self._client.start(webhook.options(key=key_of(url)), url)
            if not handle.created and (await self._client.row(handle.id_bytes)).final:
                raise IllegalMove(
                    f"the webhook {handle.key} was ended, so it would post nothing; "
                    f"`perdure restart {handle.id}` lets it go on, with all that came meanwhile"
                )
            known = handle.id_bytes
            _remember(self._webhooks, url, known)
        return known


def _remember(known: dict[T, bytes], address: T, receiver: bytes) -> None:
    if len(known) >= limits.REPLY_RECORDS:
        known.clear()
    known[address] = receiver


def is_url(given: Any) -> bool:
    """Whether a reply address is a URL: no id has a colon."""
    return isinstance(given, str) and ":" in given


def receiver_of(given: Any) -> bytes:
    """The id of the process that a reply address names; raises InvalidInput or InvalidKey."""
    id = given if isinstance(given, bytes | str) else getattr(given, "id", None)
    if not isinstance(id, bytes | str):
        raise InvalidInput(f"reply_to={shown(given)} is no address. Give a handle, the id of a process, or a URL.")
    return validation.reference(id)
