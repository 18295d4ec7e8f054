"""The parts that a client and its handles share, and the reference to one process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from perdure.authoring.library import with_library_kind
from perdure.client import validation
from perdure.client.local_worker import LocalWorker
from perdure.clock import Computer
from perdure.errors import ProcessNotFound
from perdure.futures import OnAnswer
from perdure.kernel.commit import Commit, Start
from perdure.kernel.message import LETTERS, Message, MessageType, SendAnswer
from perdure.kernel.names import id_text
from perdure.kernel.process import Process
from perdure.loop import Outage
from perdure.store.base import Search, Store
from perdure.telemetry import Telemetry

if TYPE_CHECKING:
    from perdure.authoring.registry import Registry
    from perdure.client.answers import Answers
    from perdure.client.outgoing import Outgoing
    from perdure.client.results import Results
    from perdure.client.values import Followers


class Doors(Protocol):
    """What writes a client's records, in batches: the committer of the engine."""

    outage: Outage
    telemetry: Telemetry

    def start(self, start: Start, answered: OnAnswer) -> None:
        """Store a new process; ``answered`` gets the answer."""

    def send(self, message: Message, answered: OnAnswer) -> None:
        """Send a message; ``answered`` gets the answer."""

    def commit(self, commit: Commit, answered: OnAnswer) -> None:
        """Write a commit; ``answered`` gets the answer."""


class StartTracer(Protocol):
    """Puts the trace in which a process is started into its context."""

    def start(self, process: Process, given: Mapping[str, Any] | None) -> Process:
        """The row of a new process with its context, for which this one is given."""


@dataclass(frozen=True, slots=True)
class ClientParts:
    """What the methods of a client and of its handles work with; one for each client."""

    store: Store
    doors: Doors
    machine: Computer
    results: Results
    followers: Followers
    answers: Answers
    local: LocalWorker
    registry: Registry
    outgoing: Outgoing

    async def row(self, id: bytes) -> Process:
        """Read the stored row of a process; raises ProcessNotFound."""
        validation.outside_a_turn()
        found = await self.store.search(Search(ids=(id,), limit=1))
        if not found:
            raise unknown(id)
        return found[0]

    async def ended(self, id: bytes) -> Process:
        """Wait until a process has ended or is broken, and return its row; raises ProcessNotFound.

        The local worker is asked whether it holds the process at the moment at which the wait begins: an end between
        the two would wake no waiter.
        """
        return await self.results.wait(id, here=self.local.holds(id))


def unknown(id: bytes) -> ProcessNotFound:
    """The error of a process that is not there."""
    return ProcessNotFound(f"no process has the id {id_text(id)}; `perdure ps` lists what there is")


class Reference:
    """One process by its id: what every method of a handle needs."""

    __slots__ = ("_parts", "id_bytes", "kind")

    def __init__(self, parts: ClientParts, id_bytes: bytes, kind: str | None = None) -> None:
        self._parts = parts
        self.id_bytes = id_bytes
        self.kind = kind

    @property
    def id(self) -> str:
        """The process's id as text."""
        return id_text(self.id_bytes)

    async def _send(
        self, type: MessageType, name: str, raw: bytes, key: str | None, sender: bytes | None
    ) -> SendAnswer:
        """Send the process a message; raises ProcessNotFound, InboxFull, InvalidInput."""
        answer = await self._parts.outgoing.sent(self._message(type, name, raw, key, sender))
        validation.check_sent(answer)
        return answer

    def _message(self, type: MessageType, name: str, raw: bytes, key: str | None, sender: bytes | None) -> Message:
        """A message to the process; raises InvalidInput."""
        validation.outside_a_turn()
        if self.kind is not None and type in LETTERS:
            with_library_kind(self._parts.registry, self.kind).check_letter(self.kind, name)
        return Message(self._parts.machine.new_id(), self.id_bytes, type, name, raw, key, sender)
