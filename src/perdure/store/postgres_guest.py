"""A guest on PostgreSQL: one call of a function of the schema, on a connection of whichever driver the caller has."""

from __future__ import annotations

from typing import Any

from perdure import limits
from perdure.errors import BadRecord, InvalidInput
from perdure.kernel.commit import Start, StartAnswer, StartVerdict
from perdure.kernel.message import Message, SendAnswer, SendVerdict
from perdure.kernel.names import id_bytes, id_text
from perdure.store.driver import asking
from perdure.store.postgres_schema import queries
from perdure.store.postgres_url import address_of


class PostgresGuest:
    """What each method promises stands in ``store/guest.py``."""

    def __init__(self, url: str, connection: Any, place: str | None = None) -> None:
        self._place = place
        self._sql = queries(address_of(url).schema)
        self._driver = asking(connection)
        self.blocking = self._driver.blocking

    async def start(self, start: Start) -> StartAnswer:
        """Store a new process. A second start with the same (kind, key) changes nothing (rule 24)."""
        await self._be_at_home()
        process = start.process
        verdict, holder, now = await self._driver.row(
            self._sql["enqueue"],
            (
                id_text(process.id),
                process.kind,
                process.key,
                process.input,
                process.code,
                process.deadline,
                _text(process.attributes),
            ),
        )
        return StartAnswer(StartVerdict(verdict), id_bytes(holder), 0, now)

    async def send(self, message: Message) -> SendAnswer:
        """Put a message into an inbox, under the lock of the process's row: it is kept until the transaction ends."""
        await self._be_at_home()
        verdict, number, now = await self._driver.row(
            self._sql["tell"],
            (
                id_text(message.id),
                id_text(message.process),
                int(message.type),
                message.name,
                message.payload,
                message.key,
                message.sender,
                limits.INBOX_RECORDS,
                limits.INBOX_BYTES,
            ),
        )
        return SendAnswer(SendVerdict(verdict), message.process, number, None, now)

    async def _be_at_home(self) -> None:
        """Before the first word: see that the connection is to the store's own database; raises InvalidInput."""
        if self._place is None:
            return
        (found,) = await self._driver.row(self._sql["place"], ())
        if found != self._place:
            raise InvalidInput(
                "this connection is to another database than the store: no worker of the store would find what is "
                "written there, and nothing was. Connect to the server and database that the engine's URL names."
            )
        self._place = None


def _text(attributes: bytes | None) -> str | None:
    if attributes is None:
        return None
    try:
        return attributes.decode()
    except UnicodeDecodeError as error:
        raise BadRecord(f"attributes must be JSON in UTF-8: {error}; correct the value or leave it out") from None
