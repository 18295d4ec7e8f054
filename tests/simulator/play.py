"""The play: one workflow that performs whatever program it is given, and the steps that do the program's deeds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from errno import EMFILE
from functools import cache
from typing import Any

from perdure import (
    Permanent,
    ProcessFailed,
    Retry,
    StepError,
    attempt,
    continue_as_new,
    now,
    patched,
    process_id,
    receive,
    saga,
    set_state,
    step,
    tell,
)
from perdure.authoring.registry import Registry
from perdure.authoring.workflow import Workflow
from perdure.errors import PerdureError, ProcessCancelled
from tests.simulator.ledger import Desk
from tests.simulator.program import (
    Attempted,
    Chain,
    Do,
    Fall,
    Fork,
    Guard,
    Hear,
    Kin,
    Line,
    Node,
    Program,
    Rest,
    Say,
    Scope,
    Way,
    Within,
)  # fmt: skip

SPARE_ATTEMPTS = 8
"""Attempts beyond those that are to fail: a worker that stands still may let one run over its timeout."""
QUEUE = "far"
HANG_SECONDS = 1.0
STUBBORN_SECONDS = 0.3
"""How long who is told to stop goes on."""
VERSIONS = ("1", "2")


NO_FILE = "Too many open files, as the simulated system says"


class Fallen(Exception):
    """The code of a program raised, as it was written."""


CAUGHT = (StepError, ProcessFailed, ProcessCancelled, Fallen, ExceptionGroup)
"""What a program may catch: not what would be a defect of the engine."""


# -- deeds -------------------------------------------------------------------------------------------------------------


@step
async def give_back(do: Do, after: str | None, result: str | None) -> None:
    """Take back what a step has done, if it has."""
    here = attempt()
    _check(do, "after", after, do.after or None)
    if result is None:
        Desk.ledger.note("unknowing", here.process, here.idempotency_key, do.label, here.number)
    else:
        _check(do, "with", result, do.label)
    Desk.ledger.note("undoing", here.process, here.idempotency_key, do.label, here.number)
    spoiled = Desk.ledger.mended.isdisjoint((here.process,)) and (here.number <= do.undo_fails or do.undo_fatal)
    if spoiled:
        Desk.ledger.note("failed", here.process, here.idempotency_key, do.label, here.number)
        raise (Permanent if do.undo_fatal else ConnectionError)(f"{do.label} cannot be taken back")
    Desk.ledger.note("undone", here.process, here.idempotency_key, do.label, here.number)


def _check(do: Do, how: str, given: str | None, right: str | None) -> None:
    """Note it if what a step or its undo is given is not what the program says."""
    here = attempt()
    if given != right:
        Desk.ledger.note("astray", here.process, here.idempotency_key, f"{do.label} {how} {given!r}", here.number)


async def _deed(do: Do, after: str | None) -> str | None:
    _open()
    _check(do, "after", after, do.after or None)
    with Desk.ledger.running(attempt().process, do.label):
        return await _done(do)


def _open() -> None:
    """Open a file, as most steps do: before anything else, so that nothing is done without it."""
    if Desk.starved():
        raise OSError(EMFILE, NO_FILE)


def _begun(do: Do) -> None:
    here, ledger = attempt(), Desk.ledger
    ledger.note("began", here.process, here.idempotency_key, do.label, here.number)
    if here.number > attempts(do) + ledger.tried_otherwise(here.idempotency_key, do.label):
        ledger.note("surplus", here.process, here.idempotency_key, do.label, here.number)


async def _done(do: Do) -> str | None:
    here, ledger = attempt(), Desk.ledger
    _begun(do)
    mended = here.process in ledger.mended
    if Desk.die is not None and not mended and len(list(ledger.of("began", here.idempotency_key))) <= do.deadly:
        await Desk.die()
    try:
        if do.hangs and here.number == 1:
            await asyncio.sleep(100 * HANG_SECONDS)
            ledger.note("overslept", here.process, here.idempotency_key, do.label, here.number)
        if do.seconds:
            await asyncio.sleep(do.seconds)
    except asyncio.CancelledError:
        if not do.stubborn:
            raise
        await asyncio.sleep(STUBBORN_SECONDS)
        ledger.note("late", here.process, here.idempotency_key, do.label, here.number)
        return do.label
    return _ended(do, mended=mended)


def _ended(do: Do, *, mended: bool) -> str:
    here, ledger = attempt(), Desk.ledger
    if here.number <= do.fails + do.hangs:
        ledger.note("failed", here.process, here.idempotency_key, do.label, here.number)
        raise ConnectionError(f"{do.label} does not answer yet")
    if do.fatal and not mended:
        ledger.note("failed", here.process, here.idempotency_key, do.label, here.number)
        raise (ConnectionError if do.spends else Permanent)(f"{do.label} cannot be done")
    ledger.note("done", here.process, here.idempotency_key, do.label, here.number)
    return do.label


@step
async def act(do: Do, after: str | None = None) -> str | None:
    """Do what the program says."""
    return await _deed(do, after)


@step(name="act")
def act_in_thread(do: Do, after: str | None = None) -> str | None:
    """The same, where it does not have to wait."""
    _open()
    _check(do, "after", after, do.after or None)
    with Desk.ledger.running(attempt().process, do.label):
        _begun(do)
        return _ended(do, mended=attempt().process in Desk.ledger.mended)


@step(undo=give_back)
async def book(do: Do, after: str | None = None) -> str | None:
    """Do what can be taken back."""
    return await _deed(do, after)


def attempts(do: Do) -> int:
    """How many attempts its policy allows."""
    return do.fails + do.hangs + 1 + (0 if do.spends else SPARE_ATTEMPTS)


def _set(do: Do) -> Any:
    """The step with the settings of this place."""
    retry = Retry(attempts=attempts(do), first=0.2, cap=5.0)
    timeout = do.seconds + HANG_SECONDS if do.hangs else None
    waits = do.seconds or do.hangs or do.deadly or do.stubborn or do.queue
    code: Any = book if do.undo else act if waits or not Desk.threads else act_in_thread
    return code.options(retry=retry, timeout=timeout, queue=QUEUE if do.queue else None)


# -- the performance ---------------------------------------------------------------------------------------------------


class Stage:
    """Performs a program's nodes. ``parent`` is the id of the process that asked for this one; ``old`` is old code."""

    def __init__(self, parent: str | None, *, old: bool, kin: Callable[[], Any]) -> None:
        self.parent = parent
        self.old = old
        self.kin = kin

    async def perform(self, node: Node) -> Any:
        """The value of a node."""
        match node:
            case Do():
                return await _set(node)(node)
            case Rest(seconds):
                return await _rest(seconds)
            case Line(parts):
                return [await self.perform(part) for part in parts]
            case Fork(parts, group):
                return await (_group if group else _gather)([self.perform(part) for part in parts])
            case Chain(steps, beside):
                return await self._chain(steps, beside)
            case Hear(name, count, timeout):
                return await _hear(name, count, timeout)
            case Say(name):
                return self._say(name)
            case Fall(label):
                raise Fallen(label)
            case _:
                return await self._perform_around(node)

    async def _perform_around(self, node: Node) -> Any:
        match node:
            case Within(part, seconds):
                return await self._within(part, seconds)
            case Kin(part, abandon, awaited, terminate):
                end = "abandon" if abandon else "terminate" if terminate else "cancel"
                child = self.kin().child.options(on_parent_end=end)
                asked = child(Program(part), process_id())
                return ["child", await asked] if awaited else "left"
            case Attempted(part):
                try:
                    return ["good", await self.perform(part)]
                except CAUGHT as error:
                    return ["bad", type(error).__name__]
            case Scope(part, sequential):
                async with saga(sequential=sequential):
                    return await self.perform(part)
            case Guard(part, cleanup):
                try:
                    return await self.perform(part)
                finally:
                    await self.perform(cleanup)
            case Way(name, old, new, careless):
                if not self.old and (careless or patched(name)):
                    return ["new", await self.perform(new)]
                return ["old", await self.perform(old)]
        raise PerdureError(f"no program has a {node!r}")

    async def _chain(self, steps: list[Do], beside: Do | None) -> Any:
        promise = _set(steps[0])(steps[0])
        for do in steps[1:]:
            promise = _set(do)(do, promise)
        if beside is not None:
            await self.perform(beside)
        return await promise

    async def _within(self, part: Node, seconds: float) -> Any:
        try:
            async with asyncio.timeout(seconds) as limit:
                return ["in time", await self.perform(part)]
        except TimeoutError:
            if limit.expired():
                return "late"
            raise

    def _say(self, name: str) -> str:
        if self.parent is not None:
            tell(self.parent, name, letter(name, 1))
        return "said"


async def _rest(seconds: float) -> str:
    began = now()
    await asyncio.sleep(seconds)
    return "rested" if (now() - began).total_seconds() >= seconds - 1e-6 else "too soon"


async def _gather(parts: list[Awaitable[Any]]) -> list[Any]:
    return list(await asyncio.gather(*parts))


async def _group(parts: list[Any]) -> list[Any]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(part) for part in parts]
    return [task.result() for task in tasks]


async def _hear(name: str, count: int, timeout: float | None) -> Any:
    if timeout is None:
        return ["heard", [await receive(name, str) for _ in range(count)]]
    for seconds in (0, timeout):
        try:
            return ["heard", [await receive(name, str, timeout=seconds)]]
        except TimeoutError:
            continue
    return "quiet"


NOISE = "noise"
"""The name of signals that no program receives."""


def letter(name: str, number: int) -> str:
    """The ``number``-th signal of a name."""
    return f"{name} #{number}"


def _code(name: str, version: str, *, old: bool = False) -> Workflow[Any, Any]:
    """The workflow as one node's code has it."""

    async def play(program: Program, parent: str | None = None, before: list[Any] | None = None) -> list[Any]:
        rounds = before or []
        set_state({"rounds": len(rounds)})
        value = await Stage(parent, old=old, kin=lambda: itself[0]).perform(program.body)
        rounds = [*rounds, value]
        if len(rounds) < program.rounds:
            continue_as_new(program, parent, rounds)
        return rounds

    itself = [Workflow(play, name=name, version=version)]
    return itself[0]


NEW = _code("play", "")
OLD = _code("play", "", old=True)
VERSIONED = {version: _code("edition", version) for version in VERSIONS}


@cache
def registry(*, old: bool = False, versions: tuple[str, ...] = VERSIONS, queues: bool = True) -> Registry:
    """What one node hosts: the play's new code or its old, which editions of it, and the queue or not.

    Nodes that host the same share it: to look whether the code is pure takes a tenth of a history.
    """
    hosted = Registry(OLD if old else NEW, *(VERSIONED[version] for version in versions))
    hosted.serve_only([QUEUE] if queues else [])
    return hosted
