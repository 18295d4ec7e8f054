"""A handle: one durable process as a client holds it, by its id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from perdure.client.view import ProcessView
from perdure.clock import Duration
from perdure.kernel.event import Event
from perdure.kernel.message import SendVerdict
from perdure.kernel.names import id_text

if TYPE_CHECKING:
    from perdure.client.client import Client
    from perdure.client.values import Stream

ResultT = TypeVar("ResultT")
T = TypeVar("T")
NO_DEFAULT: Any = object()
"""Stands for a default that was not given."""


class Questions:
    """What a process shows and answers, by its id."""

    __slots__ = ("_client", "id_bytes")

    def __init__(self, client: Client, id_bytes: bytes) -> None:
        self._client = client
        self.id_bytes = id_bytes

    @overload
    async def value(self, name: str, type: type[T], *, wait: Duration = 0, default: T = NO_DEFAULT) -> T: ...
    @overload
    async def value(self, name: str, type: Any = Any, *, wait: Duration = 0, default: Any = NO_DEFAULT) -> Any: ...
    async def value(self, name: str, type: Any = Any, *, wait: Duration = 0, default: Any = NO_DEFAULT) -> Any:
        """The value that the process has published last under that name; see :meth:`Client.value`."""
        return await self._client.value(self.id_bytes, name, type, wait=wait, default=default)

    @overload
    def values(
        self, name: str | None, type: type[T], *, after: int = 0, run: int | None = None, follow: bool = True
    ) -> Stream[T]: ...
    @overload
    def values(
        self, name: str | None = None, type: Any = Any, *, after: int = 0, run: int | None = None, follow: bool = True
    ) -> Stream[Any]: ...
    def values(
        self, name: str | None = None, type: Any = Any, *, after: int = 0, run: int | None = None, follow: bool = True
    ) -> Stream[Any]:
        """The values that the process publishes, as they come, until it has ended; see :meth:`Client.values`."""
        return self._client.values(self.id_bytes, name, type, after=after, run=run, follow=follow)

    @overload
    async def call(
        self, name: str, value: object, type: type[T], *, key: str | None = None, timeout: Duration | None = None
    ) -> T: ...
    @overload
    async def call(
        self,
        name: str,
        value: object = None,
        type: Any = Any,
        *,
        key: str | None = None,
        timeout: Duration | None = None,
    ) -> Any: ...
    async def call(
        self,
        name: str,
        value: object = None,
        type: Any = Any,
        *,
        key: str | None = None,
        timeout: Duration | None = None,
    ) -> Any:
        """Ask the process something and wait for its answer, as ``type``; see :meth:`Client.call`."""
        return await self._client.call(self.id_bytes, name, value, type, key=key, timeout=timeout)


class Handle(Questions, Generic[ResultT]):
    """What ``start`` answers. ``created`` is false if a process with that key existed already.

    ``sent`` says what became of the signal that came with the start, if one did.

    A handle holds no connection and no memory of the process; any number may exist for one process.
    """

    __slots__ = ("_type", "created", "key", "kind", "known", "sent")

    def __init__(
        self, client: Client, id_bytes: bytes, kind: str, key: str | None, *, created: bool, result_type: Any = Any
    ) -> None:
        super().__init__(client, id_bytes)
        self._type = result_type
        self.kind = kind
        self.key = key
        self.created = created
        self.sent: SendVerdict | None = None
        self.known = True  # to be stored; not so while the caller's transaction is open

    @property
    def id(self) -> str:
        """The process's id as text."""
        return id_text(self.id_bytes)

    def __repr__(self) -> str:
        return f"<Handle {self.kind} {self.key or self.id}>"

    async def result(self, timeout: Duration | None = None) -> ResultT:
        """Wait for the end and give the result. ``timeout`` in seconds raises TimeoutError; the process goes on.

        Raises ProcessFailed, ProcessCancelled or ProcessBroken if it did not complete.
        """
        value: ResultT = await self._client.result(self.id_bytes, timeout=timeout, type=self._type, known=self.known)
        return value

    async def status(self) -> ProcessView:
        """The process as it is now, with its next mover."""
        return await self._client.status(self.id_bytes)

    async def history(self, run: int | None = None, *, after: int = 0, limit: int = 1000) -> Sequence[Event]:
        """Events of a run (default the present one) with numbers above ``after``, at most ``limit``."""
        return await self._client.history(self.id_bytes, run, after=after, limit=limit)

    async def signal(self, name: str, value: object = None, *, key: str | None = None) -> SendVerdict:
        """Send a signal; ``key`` makes a repeat with the same key count once."""
        return await self._client.signal(self.id_bytes, name, value, key=key)

    async def cancel(self, *, deadline: Duration | None = None, who: str = "", why: str = "") -> SendVerdict:
        """Ask the process to cancel: its code gets CancelledError where it waits, and may clean up.

        If it has not ended ``deadline`` seconds from now it is terminated.
        """
        return await self._client.cancel(self.id_bytes, deadline=deadline, who=who, why=why)

    async def terminate(self, *, who: str = "", why: str = "") -> None:
        """End the process at once, without its code. Raises IllegalMove if it has ended."""
        await self._client.terminate(self.id_bytes, who=who, why=why)

    async def hold(self, *, who: str = "", why: str = "") -> None:
        """Pause the process until it is resumed. Raises IllegalMove if it is not running."""
        await self._client.hold(self.id_bytes, who=who, why=why)

    async def resume(self, *, who: str = "", why: str = "") -> None:
        """Let the held process go on where it was; steps that were in flight run again under their old keys."""
        await self._client.resume(self.id_bytes, who=who, why=why)

    async def retry(self, *, who: str = "", why: str = "") -> None:
        """Let a failed, broken or held process go on from its last good event."""
        await self._client.retry(self.id_bytes, who=who, why=why)

    async def restart(self, *, who: str = "", why: str = "") -> None:
        """Begin again from the stored input, whatever its status, in a new run that keeps nothing."""
        await self._client.restart(self.id_bytes, who=who, why=why)

    async def restart_from(self, step: str, *, who: str = "", why: str = "") -> None:
        """Run a step (``charge``, or ``charge:2``) again and all that followed it; what ran beside it is kept."""
        await self._client.restart_from(self.id_bytes, step, who=who, why=why)

    async def set_result(self, step: str, value: object, *, who: str = "", why: str = "") -> None:
        """Give a step (``charge``, or ``charge:2``) that is open or has failed its result by hand."""
        await self._client.set_result(self.id_bytes, step, value, who=who, why=why)

    async def skip(self, step: str, *, who: str = "", why: str = "") -> None:
        """Leave out a step that is open or has failed: its result is None."""
        await self._client.skip(self.id_bytes, step, who=who, why=why)
