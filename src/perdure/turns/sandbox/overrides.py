"""Overrides: in a turn, the machine's clock and chance are answered from the turn, or refused.

The functions of ``time``, ``random``, ``os`` and ``uuid`` are replaced, once, by overrides that look whether the
calling thread is in a turn; elsewhere they do what they always did. An audit hook refuses I/O (``audit``).
"""

from __future__ import annotations

import asyncio
import builtins
import logging
import os
import random
import sys
import threading
import time
import uuid
import warnings
from _thread import allocate_lock, get_ident
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from perdure.errors import WorkflowMisuse
from perdure.turns.bare_loop import SandboxLoop
from perdure.turns.current import current_turn, turns
from perdure.turns.patches import patches_of
from perdure.turns.sandbox import audit, loop_bound

if TYPE_CHECKING:
    from types import ModuleType

    from perdure.turns.asking import AskingLoop

Replacement = Callable[..., Any]
"""What is called in a turn instead: with the turn loop, then the call's own arguments."""

_lock = allocate_lock()
_built = False


class Override:
    """Stands in a module for one of its functions; pickled, it is that function again."""

    __slots__ = ("__wrapped__", "_answer", "_place")

    def __init__(self, module: ModuleType, name: str, answer: Replacement) -> None:
        self.__wrapped__: Callable[..., Any] = getattr(module, name)
        self._place = module.__name__, name
        self._answer = answer

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Answer as the turn does, or do what the function always did."""
        if turns and (loop := turns.get(get_ident())) is not None:
            return self._answer(loop, *args, **kwargs)
        return self.__wrapped__(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__wrapped__, name)

    def __repr__(self) -> str:
        return repr(self.__wrapped__)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str]]:
        return _function, self._place


def _function(module: str, name: str) -> Any:
    return getattr(import_module(module), name)


def build() -> None:
    """Install the overrides, once for the whole OS process."""
    global _built
    if _built:
        return
    with _lock:
        if not _built:
            _gate_time()
            _gate_chance()
            _quiet_the_dead()
            _number_gathers()
            _order_completions()
            _wait_alike()
            _say_nothing_twice()
            loop_bound.guard()
            audit.watch()
            _built = True


def originals() -> Mapping[int, str]:
    """The ids of the functions that are overridden, each as it was and as its override, with its name.

    They are asked for with each workflow that an engine is given, so they are kept as soon as all overrides stand.
    """
    return _overridden() if _built else _named()


@cache
def _overridden() -> Mapping[int, str]:
    return _named()


def _named() -> Mapping[int, str]:
    names = [("time", name) for name in (*_SECONDS, *_NANOSECONDS, *_CALENDAR, "sleep", "clock_gettime")]
    names += [("random", name) for name in _CHANCE]
    if sys.version_info < (3, 12):  # later ones do in a turn what they do elsewhere
        names += [("asyncio", "wait_for")]
    names += [("asyncio", "as_completed"), ("os", "urandom"), ("os", "getrandom")]
    names += [("uuid", name) for name in _MACHINE_IDS]
    found = {}
    for module, name in names:
        function = getattr(sys.modules[module], name, None)  # all are imported above
        if function is not None:
            found[id(function)] = found[id(getattr(function, "__wrapped__", function))] = f"{module}.{name}"
    return found


# -- time ----------------------------------------------------------------------------------------------------------

_SECONDS = ("time", "monotonic", "perf_counter", "process_time", "thread_time")
_NANOSECONDS = tuple(f"{name}_ns" for name in _SECONDS)
_CALENDAR = {"localtime": 0, "gmtime": 0, "ctime": 0, "strftime": 1, "asctime": 0}
"""Functions that read the clock if the argument at that place is left out."""


def _gate_time() -> None:
    for name in _SECONDS:
        _gate(time, name, lambda loop: loop.now / 1_000_000)
    for name in _NANOSECONDS:
        _gate(time, name, lambda loop: loop.now * 1000)
    for name, place in _CALENDAR.items():
        _gate(time, name, _calendar(name, place))
    _gate(time, "clock_gettime", lambda loop, clock: loop.now / 1_000_000)
    _gate(time, "clock_gettime_ns", lambda loop, clock: loop.now * 1000)
    _gate(threading, "_start_new_thread", _refusal("a thread was started: it would not end with the turn."))
    _gate(time, "sleep", _refusal("time.sleep() would block every process of this worker. Await asyncio.sleep()."))


def _calendar(name: str, place: int) -> Replacement:
    function = getattr(time, name)

    def answer(loop: AskingLoop, *args: Any) -> Any:
        if len(args) <= place or args[place] is None:
            seconds = loop.now / 1_000_000
            fields = name in ("strftime", "asctime")
            args = (*args[:place], _local_time(seconds) if fields else seconds)
        return function(*args)

    return answer


_local_time = time.localtime


# -- chance --------------------------------------------------------------------------------------------------------

_CHANCE = (
    "betavariate", "binomialvariate", "choice", "choices", "expovariate", "gammavariate", "gauss", "getrandbits",
    "getstate", "lognormvariate", "normalvariate", "paretovariate", "randbytes", "randint", "random", "randrange",
    "sample", "seed", "setstate", "shuffle", "triangular", "uniform", "vonmisesvariate", "weibullvariate",
)  # fmt: skip
_MACHINE_IDS = ("uuid1", "uuid6", "uuid7")


def _gate_chance() -> None:
    for name in _CHANCE:
        _gate(random, name, _from_the_seed(name))
    _gate(os, "urandom", lambda loop, size: _source(loop).randbytes(size))
    _gate(os, "getrandom", lambda loop, size, flags=0: _source(loop).randbytes(size))
    random._urandom = vars(os)["urandom"]  # type: ignore[attr-defined]  # what SystemRandom and secrets use
    for name in _MACHINE_IDS:
        _gate(uuid, name, _refusal(f"uuid.{name}() differs at every replay. Use perdure.new_uuid() or uuid.uuid4()."))
    seed = random.Random.seed

    def seeded(self: random.Random, a: Any = None, version: int = 2) -> None:
        loop = current_turn()
        if a is None and loop is not None:  # Random() in a turn
            a = _source(loop).getrandbits(256)
        seed(self, a, version)

    random.Random.seed = seeded  # type: ignore[method-assign]


def _from_the_seed(name: str) -> Replacement:
    return lambda loop, *args, **kwargs: getattr(_source(loop), name)(*args, **kwargs)


def _source(loop: AskingLoop) -> random.Random:
    """The source of the process; another one for a module that is being imported, which no replay imports again."""
    return _fresh_source() if audit.called_by(audit.IMPORTERS) else loop.chance


_machine_bytes: Callable[[int], bytes] = vars(os)["urandom"]


def _fresh_source() -> random.Random:
    """A source that has nothing to do with any process."""
    return random.Random(_machine_bytes(32))  # as in a turn Random() is of the process


def _unrepeated(loop: AskingLoop, function: Callable[..., None], *args: Any, **kwargs: Any) -> None:
    """Call what a replay does not call again: what it draws is not missing from the source of the process."""
    source, loop.chance = loop.chance, _fresh_source()
    try:
        function(*args, **kwargs)
    finally:
        loop.chance = source


def _refusal(text: str) -> Replacement:
    def refuse(loop: AskingLoop, *args: Any, **kwargs: Any) -> Any:
        raise WorkflowMisuse(f"{text} What must use the machine itself belongs in a step.")

    return refuse


def _gate(module: ModuleType, name: str, answer: Replacement) -> None:
    if hasattr(module, name):
        setattr(module, name, Override(module, name, answer))


# -- asyncio and warnings --------------------------------------------------------------------------------------------


def _quiet_the_dead() -> None:
    """Do not warn of a coroutine that an evicted process never awaited: that is no mistake."""
    warn = warnings._warn_unawaited_coroutine  # type: ignore[attr-defined]

    def warn_unless_dead(coroutine: Any) -> None:
        loop = current_turn()
        if loop is None or not loop.dead:
            warn(coroutine)

    warnings._warn_unawaited_coroutine = warn_unless_dead  # type: ignore[attr-defined]


def _number_gathers() -> None:
    """Let the futures of ``gather`` hash by creation in a turn, as all others do there (rule 19)."""
    plain = getattr(asyncio.tasks, "_GatheringFuture", None)
    if plain is None:
        return

    class Gathering(plain):  # type: ignore[misc,valid-type]
        number: int | None = None

        def __init__(self, children: Any, *, loop: Any) -> None:
            super().__init__(children, loop=loop)
            if isinstance(loop, SandboxLoop):
                turn = cast("AskingLoop", loop)
                self.number = turn.numbers = turn.numbers + 1

        def __hash__(self) -> int:
            return object.__hash__(self) if self.number is None else self.number

    Gathering.__name__ = Gathering.__qualname__ = plain.__name__
    asyncio.tasks._GatheringFuture = Gathering  # type: ignore[attr-defined]


def _order_completions() -> None:
    """Let ``as_completed`` start its coroutines in their order; asyncio itself puts them into a set, by address."""
    plain = asyncio.as_completed

    def answer(loop: AskingLoop, fs: Any, *, timeout: float | None = None) -> Any:
        if not (asyncio.isfuture(fs) or asyncio.iscoroutine(fs)):
            fs = [asyncio.ensure_future(one) for one in dict.fromkeys(fs)]
        return plain(fs, timeout=timeout)

    gate = Override(asyncio, "as_completed", answer)
    asyncio.as_completed = asyncio.tasks.as_completed = gate


IN_PLACE = " wait_for"
"""The patch of processes for which ``wait_for`` is the same with every Python; no user's patch begins with a space."""


def _wait_alike() -> None:
    """Let ``wait_for`` await in place with Python 3.11 too, which makes a task of a coroutine: a branch of its own.

    A process that has passed one before goes on as its Python does it.
    """
    plain = asyncio.wait_for

    async def in_place(fut: Any, timeout: float) -> Any:
        async with asyncio.timeout(timeout):
            return await fut

    def answer(loop: AskingLoop, fut: Any, timeout: float | None) -> Any:
        if timeout is None or timeout <= 0 or not patches_of(loop).decide(IN_PLACE, loop.past):
            return plain(fut, timeout)
        return in_place(fut, timeout)

    gate = Override(asyncio, "wait_for", answer)
    asyncio.wait_for = asyncio.tasks.wait_for = gate


# -- what the code says ----------------------------------------------------------------------------------------------


def _say_nothing_twice() -> None:
    """Let a replay not repeat what workflow code prints and logs: the turn itself has done so."""
    plain = print

    def answer(loop: AskingLoop, *args: Any, file: Any = None, **kwargs: Any) -> None:
        if file not in (None, sys.stdout, sys.stderr):
            plain(*args, file=file, **kwargs)
        elif not _has_said(loop):
            _unrepeated(loop, plain, *args, file=file, **kwargs)

    _gate(builtins, "print", answer)
    handle = logging.Logger.handle

    def handle_once(self: logging.Logger, record: logging.LogRecord) -> None:
        loop = current_turn()
        if loop is None:
            handle(self, record)
        elif not _has_said(loop) or record.name.startswith("perdure."):
            _unrepeated(loop, handle, self, record)

    logging.Logger.handle = handle_once  # type: ignore[method-assign]


def _has_said(loop: AskingLoop) -> bool:
    """Whether the code is replayed, or only closed because its process was evicted."""
    return loop.fired is not None or loop.dead
