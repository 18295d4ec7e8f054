"""The client: starts processes, finds them, and gives a handle to each."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from msgspec.structs import replace

from perdure import limits
from perdure.authoring.registry import Registry, several
from perdure.authoring.start import NamedWorkflow, Startable, StartOptions, split
from perdure.authoring.workflow import Workflow
from perdure.client import validation
from perdure.client.answers import Answers
from perdure.client.existing import refuse_another
from perdure.client.explaining.verbs import Explaining
from perdure.client.groups import Groups
from perdure.client.handle import Handle
from perdure.client.local_worker import LocalWorker, NoWorker
from perdure.client.many_results import ManyResults
from perdure.client.outgoing import Outgoing
from perdure.client.parts import ClientParts, Doors, StartTracer
from perdure.client.results import Results
from perdure.client.validation import ProcessId
from perdure.client.values import Followers
from perdure.clock import Computer, Duration
from perdure.errors import (
    InvalidInput,
    ProcessNotFound,
    UnknownKind,
)
from perdure.futures import asked
from perdure.kernel.commit import CREATED, Start, StartAnswer
from perdure.kernel.context import carrying, checked
from perdure.kernel.message import Message, MessageType, SendVerdict
from perdure.kernel.names import check_key, id_text
from perdure.kernel.process import Process
from perdure.kernel.worker import hosted_by
from perdure.store.base import Search, Store

if TYPE_CHECKING:
    from perdure.client.finding.finder import Finder
    from perdure.client.leadership import Leadership
    from perdure.client.view import ProcessView

P = ParamSpec("P")
R = TypeVar("R")


class Client(Explaining, Groups, ManyResults):
    """Starts, finds and counts processes. It needs no worker, so it fits into a web server.

    The verbs for a single process are methods of its handle; those for schedules, operations, checks, exports and
    imports, event streams, queues, kinds, circuit breakers, outages, saved searches, automatic recovery and the store's
    clock are methods of ``schedules``, ``operations``, ``checks``, ``archive``, ``streams``, ``queues``, ``kinds``,
    ``breakers``, ``outages``, ``searches``, ``recovery`` and ``clock``.

    While the database does not answer, starts and messages wait for it, and reads raise StoreUnavailable. Workflow code
    may not use it: every method that reads or writes raises WorkflowMisuse there.
    """

    declares = False
    """Whether it puts the limits in force that its workflows declare: a program that works does."""

    def __init__(
        self, store: Store, doors: Doors, registry: Registry, machine: Computer, local: LocalWorker | None = None
    ) -> None:
        self.store = store
        self.doors = doors
        self.registry = registry
        self.machine = machine
        answers = Answers(store)
        self.local: LocalWorker = local or NoWorker()
        self.tracer: StartTracer | None = None
        outgoing = Outgoing(doors, self.local)
        results = Results(store, machine, doors.outage, answers)
        self.parts = ClientParts(
            store, doors, machine, results, Followers(store), answers, self.local, registry, outgoing
        )

    # -- starting ------------------------------------------------------------------------------------------------

    @overload
    async def start(self, workflow: Startable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]: ...
    @overload
    async def start(self, workflow: str, /, *args: Any, **kwargs: Any) -> Handle[Any]: ...
    async def start(self, workflow: Startable[Any, Any] | str, /, *args: Any, **kwargs: Any) -> Handle[Any]:
        """Start a process and return its handle once it is stored: from then on no crash can lose it.

        The arguments after the workflow are the workflow's own; a key, a deadline, a delay, attributes and a first
        signal are options of the workflow: ``engine.start(order.options(key="A-17"), 1299)``, see
        :meth:`Startable.options`. Raises KeyConflict if the key belongs to a process with another input, UnknownKind
        if neither this program nor a live worker knows the workflow's name, InvalidInput (PayloadError, InvalidKey) for
        arguments or options that cannot be stored, InboxFull if the first signal found no room, Overloaded.
        """
        flow: Workflow[Any, Any] | NamedWorkflow
        try:
            flow, options = self.registry.startable(workflow)
        except UnknownKind as unknown:
            flow, options = await self._elsewhere(workflow, unknown)
        process = self._fresh(flow, args, kwargs, options)
        if options.debounce is not None:
            return await self._debounced(process, flow, options)
        message = None if options.signal is None else self._first_message(process, options)
        if options.reply_to is not None:
            process = await self.reply_addresses.given(process, options.reply_to)
        if process.deadline is not None or options.delay is not None:
            (process,) = await self._dated([process], validation.delay(options, process.deadline))
        answer = await self._begin(process, flow, () if message is None else (message,), options.reply_to is None)
        handle = self._handle(flow, process, answer)
        if not handle.created:
            await refuse_another(self.parts, process, answer)
        if message is not None:
            handle.sent = SendVerdict.DELIVERED if handle.created else await self._forward(message, handle)
        return handle

    async def _elsewhere(
        self, workflow: Startable[Any, Any] | str, unknown: UnknownKind
    ) -> tuple[NamedWorkflow, StartOptions]:
        """Find the version that live workers host of a name not known here; raises UnknownKind if none or several.

        A NamedWorkflow that no live worker hosts is started as it is.
        """
        bare, options = split(NamedWorkflow(workflow) if isinstance(workflow, str) else workflow)
        if not isinstance(bare, NamedWorkflow) or bare.name in self.registry.kinds:
            raise unknown
        versions = await self._hosted(bare.name)
        if len(versions) > 1:
            raise UnknownKind(several(bare.name, sorted(versions)))
        if versions:
            bare = NamedWorkflow(bare.name, version=versions.pop())
        elif isinstance(workflow, str):
            raise unknown
        return bare, options

    async def _hosted(self, kind: str) -> set[str]:
        """The versions of this kind that live workers host."""
        validation.outside_a_turn()
        return {version for name, version in hosted_by(await self.store.workers()) if name == kind}

    @overload
    async def start_many(
        self,
        workflow: Workflow[..., R],
        calls: Iterable[Sequence[Any]],
        *,
        keys: Iterable[str | None] | None = None,
    ) -> list[Handle[R]]: ...
    @overload
    async def start_many(
        self, workflow: str, calls: Iterable[Sequence[Any]], *, keys: Iterable[str | None] | None = None
    ) -> list[Handle[Any]]: ...
    async def start_many(
        self,
        workflow: Workflow[Any, Any] | str,
        calls: Iterable[Sequence[Any]],
        *,
        keys: Iterable[str | None] | None = None,
    ) -> list[Handle[Any]]:
        """Start many processes of one kind and return their handles in order; uses as few transactions as possible.

        In an engine that works itself, and beside which no other worker offers the workflow, each process waits for a
        place here while places become free, up to a second for the next: this takes as long as they need to begin.

        ``calls`` gives a tuple of arguments for each process, ``keys`` a key or None for each. Some may be stored when
        another one fails: the same call with the same keys then starts those that are missing. Raises KeyConflict,
        UnknownKind if this program does not know the workflow, InvalidInput (PayloadError, InvalidKey), Overloaded.
        """
        flow = self.registry.find(workflow)
        every = validation.calls(calls)
        names = list(keys) if keys is not None else [None] * len(every)
        if len(names) != len(every):
            raise InvalidInput(f"{len(every)} calls but {len(names)} keys: give one key, or None, for each call")
        fresh = [self._fresh(flow, args, {}, StartOptions(key)) for args, key in zip(every, names, strict=True)]
        answers: list[StartAnswer] = []
        for portion in validation.portions(fresh):
            if flow.deadline is not None:
                portion = await self._dated(portion)
            answers += await self._begin_all(portion, flow)
        for process, answer in zip(fresh, answers, strict=True):
            if answer.verdict is not CREATED:
                await refuse_another(self.parts, process, answer)
        return [self._handle(flow, process, answer) for process, answer in zip(fresh, answers, strict=True)]

    def _fresh(
        self,
        workflow: Workflow[Any, Any] | NamedWorkflow,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        options: StartOptions,
    ) -> Process:
        validation.outside_a_turn()
        if options.key is not None:
            check_key(options.key)
        seconds = workflow.deadline if options.deadline is None else options.deadline
        process = Process(
            id=self.machine.new_id(),
            kind=workflow.name,
            key=options.key,
            input=validation.input(workflow, args, kwargs),
            code=workflow.version,
            deadline=None if seconds is None else validation.duration(seconds, "the deadline"),
            attributes=validation.attributes(options.attributes),
            priority=options.priority,
        )
        if self.tracer is not None:
            return self.tracer.start(process, options.context)
        return process if options.context is None else carrying(process, checked(options.context))

    def _first_message(self, process: Process, options: StartOptions) -> Message | None:
        if options.signal is None:
            return None
        signal = validation.first_signal(options.signal, options.context)
        return Message(self.machine.new_id(), process.id, MessageType.SIGNAL, *signal)

    async def _forward(self, message: Message, handle: Handle[Any]) -> SendVerdict:
        """Send the first signal of a start to the process that has the key already; nothing else is written then."""
        answer = await self.parts.outgoing.sent(replace(message, process=handle.id_bytes))
        validation.check_room(answer)
        return answer.verdict

    async def _debounced(
        self, process: Process, flow: Workflow[Any, Any] | NamedWorkflow, options: StartOptions
    ) -> Handle[Any]:
        async def begin(start: Process, wait: int) -> tuple[Process, StartAnswer]:
            (start,) = await self._dated([start], wait)
            return start, await self._begin(start, flow, ())

        if options.reply_to is not None:
            process = await self.reply_addresses.given(process, options.reply_to)
        from perdure.client.debounce import debounced

        return await debounced(self.parts, begin, process, flow, options)

    async def _dated(self, fresh: Sequence[Process], delay: int | None = None) -> list[Process]:
        """The same processes with their deadlines, and the one delay of all, as times by the store's clock."""
        now = await self.store.now()
        due_at = None if delay is None else now + delay
        dated = (None if one.deadline is None else now + one.deadline for one in fresh)
        return [replace(one, deadline=deadline, due_at=due_at) for one, deadline in zip(fresh, dated, strict=True)]

    def _begin(
        self,
        process: Process,
        workflow: Workflow[Any, Any] | NamedWorkflow,
        messages: tuple[Message, ...],
        silent: bool = True,
    ) -> asyncio.Future[StartAnswer]:
        """Store a start; one that is ``silent`` may be made with its first turn, by an insert that tells nobody."""
        eager = None
        if silent and process.due_at is None and isinstance(workflow, Workflow):
            eager = self.local.start(process, workflow, messages)
        if eager is not None:
            return eager
        if workflow.limits is not None and self.declares:
            return asyncio.ensure_future(self._begin_limited(process, workflow, messages))
        return asked(self.doors.start, Start(process, messages=messages))

    async def _begin_limited(
        self, process: Process, workflow: Workflow[Any, Any] | NamedWorkflow, messages: tuple[Message, ...] = ()
    ) -> StartAnswer:
        """Store a start of a workflow that declares limits, which are in force before any worker can take it."""
        await self.kinds.declare(workflow)
        answer: StartAnswer = await asked(self.doors.start, Start(process, messages=messages))
        return answer

    async def _begin_all(self, portion: Sequence[Process], workflow: Workflow[Any, Any]) -> list[StartAnswer]:
        """Start many: what our own worker can run soon waits for a place there, to be claimed would take longer."""
        if workflow.limits is not None and self.declares:
            await self.kinds.declare(workflow)
        begun: list[asyncio.Future[StartAnswer]] = []
        waits = True
        for process in portion:
            eager = self.local.start(process, workflow, ())
            if eager is None and waits:
                waits = await self.local.has_room(process.kind)
                eager = self.local.start(process, workflow, ()) if waits else None
            begun.append(asked(self.doors.start, Start(process)) if eager is None else eager)
        return await asyncio.gather(*begun)

    def _handle(
        self, workflow: Workflow[Any, Any] | NamedWorkflow, process: Process, answer: StartAnswer
    ) -> Handle[Any]:
        return Handle(
            self.parts,
            answer.id,
            process.kind,
            process.key,
            created=answer.verdict is CREATED,
            result_type=workflow.shape.result_type,
        )

    async def webhook(self, url: str) -> str:
        """The id of the process that posts notices to this URL, http or https; it is started if there is none.

        ``reply_to=url`` asks for it by itself; a start in the caller's own transaction needs the id. Any worker serves
        the process. Raises InvalidInput, and IllegalMove if a person has ended that process.
        """
        return id_text(await self.reply_addresses.webhook(url))

    def leader(
        self,
        name: str,
        *,
        lease: Duration = limits.LEADER_LEASE_SECONDS,
        timeout: Duration | None = None,
        heartbeat_timeout: Duration | None = None,
    ) -> Leadership:
        """Lead in something, as the only one of all programs that ask: ``async with engine.leader("import") as lead:``.

        Entering waits until this program leads, or raises TimeoutError after ``timeout``; the block is cancelled, and
        raises LeadershipLost, if the lease cannot be renewed. ``lease`` (15 seconds, from 1 second to an hour) is for
        how long nobody else leads after the program has died; it is renewed at each third of that. With
        ``heartbeat_timeout`` it is renewed only as long as the block calls ``lead.heartbeat()`` that often. Durations
        are seconds or timedeltas. Two may lead for a moment all the same: give ``lead.term`` to what you write.
        Raises InvalidInput (InvalidKey).
        """
        return self.leaders.ask(name, lease, timeout, heartbeat_timeout)

    # -- asking --------------------------------------------------------------------------------------------------

    @overload
    async def handle(self, workflow: Workflow[..., R], key: str) -> Handle[R]: ...
    @overload
    async def handle(self, workflow: str, key: str) -> Handle[Any]: ...
    async def handle(self, workflow: Workflow[Any, Any] | str, key: str) -> Handle[Any]:
        """Find the process of a workflow (or of a workflow's name) by its key; raises ProcessNotFound."""
        validation.outside_a_turn()
        kind = workflow if isinstance(workflow, str) else workflow.name
        found = await self.store.search(Search(kind=kind, key=key, limit=1))
        if not found:
            raise ProcessNotFound(f"no process of kind {kind!r} has the key {key!r}; `perdure ps` lists what there is")
        return self.handle_of(found[0])

    def handle_of(self, process: Process) -> Handle[Any]:
        """The handle of a process whose row was read already."""
        known = self.registry.versions.get((process.kind, process.code)) or self.registry.kinds.get(process.kind)
        type = Any if known is None else known.shape.result_type
        return Handle(self.parts, process.id, process.kind, process.key, created=False, result_type=type)

    @overload
    def process(self, process: ProcessId, type: type[R]) -> Handle[R]: ...
    @overload
    def process(self, process: ProcessId, type: Any = Any) -> Handle[Any]: ...
    def process(self, process: ProcessId, type: Any = Any) -> Handle[Any]:
        """The handle of the process with this id; its ``result`` is decoded to ``type``. Raises InvalidKey.

        Nothing is read: if there is no such process, the handle's methods raise ProcessNotFound.
        """
        return Handle(self.parts, validation.reference(process), result_type=type, known=False)

    async def row(self, process: ProcessId) -> Process:
        """The stored row of a process; raises ProcessNotFound."""
        return await self.parts.row(validation.reference(process))

    async def list(self, search: Search | None = None, *, where: str = "") -> Sequence[ProcessView]:
        """The processes that fit the search, newest first, at most ``search.limit`` (100). Raises InvalidInput.

        ``where`` is a query, which they must fit too: ``"status = failed and error = CardRefused and age < 2d"``.
        """
        validation.outside_a_turn()
        search = validation.search(search)
        found = await (self._finder(search, where).first() if where else self.store.search(search))
        from perdure.client.view import views

        return await views(self.store, found)

    async def count(self, search: Search | None = None, *, where: str = "") -> dict[str, dict[str, int]]:
        """How many processes fit the search and the query, by kind, then by status: ``{"order": {"running": 3}}``."""
        validation.outside_a_turn()
        search = validation.search(search)
        numbers = await (self._finder(search, where).counts() if where else self.store.count(search))
        counts: dict[str, dict[str, int]] = {}
        for kind, status, number in numbers:
            counts.setdefault(kind, {})[status.value] = number
        return counts

    def _finder(self, search: Search, where: str) -> Finder:
        from perdure.client.finding.finder import Finder

        return Finder(self.store, search, where)
