"""What runs in a cell, a child OS process of a worker: hard steps, one after the other.

It is a fork of :mod:`perdure.runtime.steps.isolated.fork_server_main`, and is given two file descriptors (the channel;
a pipe that closes when the worker dies) and the modules or files that the application consists of.
"""

from __future__ import annotations

import asyncio
import faulthandler
import fcntl
import os
import resource
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from inspect import iscoroutinefunction
from pathlib import Path
from threading import Lock, Thread
from typing import Any, NoReturn

from msgspec import Raw

from perdure.authoring import isolation
from perdure.authoring.attempt import ATTEMPT, Attempt
from perdure.authoring.isolation import HARD
from perdure.authoring.registry import module_of
from perdure.authoring.step import Step
from perdure.clock import Computer
from perdure.errors import DefinitionError
from perdure.kernel import payload
from perdure.kernel.failure import answered
from perdure.kernel.names import id_bytes
from perdure.kernel.process import Process
from perdure.limits import ATTRIBUTES_BYTES
from perdure.runtime.steps.isolated.protocol import (
    ChildReady,
    Frames,
    Order,
    Said,
    StepBeat,
    StepBegun,
    StepDone,
    StepEnded,
    StepRaised,
    framed,
    read_order,
)

RECEIVED_BYTES = 64 * 1024
SCORE = 500
"""Added to a cell's OOM score, of 1,000: out of memory, the kernel kills the cell rather than its worker."""


class ChildMain:
    """Reads orders from the channel, runs the step of each on the main thread, and answers."""

    def __init__(self, channel: socket.socket, machine: Computer) -> None:
        channel.settimeout(None)  # the application that was just imported may have set another default
        self.channel = channel
        self.machine = machine
        self._frames = Frames()
        self._speaking = Lock()
        self._busy = False
        self._stopped = False
        self._allowed = resource.getrlimit(resource.RLIMIT_DATA)

    def live(self) -> None:
        """Run what is ordered until the worker hangs up, or asks to stop."""
        self.say(ChildReady())
        while not self._stopped and (body := self._next()) is not None:
            order = read_order(body)
            answer = self._answer(order)
            if self._stopped:
                return  # the attempt was taken back: nobody waits for its answer
            for stream in (sys.stdout, sys.stderr):
                with suppress(Exception):  # a closed one, or one of the step's own making
                    stream.flush()
            self.say(answer)

    def say(self, message: Said) -> None:
        """Send the worker a message, from any thread."""
        with self._speaking:
            self.channel.sendall(framed(message))

    def stop(self, number: int, frame: Any) -> None:
        """Handle the signal to stop: the step's own code gets it as a cancellation, and may clean up."""
        self._stopped = True
        if not self._busy:
            sys.exit()
        raise asyncio.CancelledError("the process does not want this step any more")

    def _next(self) -> bytes | None:
        while (body := self._frames.take()) is None:
            received = self.channel.recv(RECEIVED_BYTES)
            if not received:
                return None
            self._frames.feed(received)
        return body

    def _answer(self, order: Order) -> StepEnded:
        step = found(order)
        args, kwargs = step.shape.decode(bytes(order.args))
        signal.signal(signal.SIGTERM, self.stop)
        self.say(StepBegun())
        told = OrderedAttempt(self, order)
        ATTEMPT.set(told.itself)
        try:
            with self._confined(order.memory):
                value = self._call(step, args, kwargs)
            return StepDone(Raw(step.shape.encode_result(value)))
        except BaseException as error:  # whatever a step raises is its answer
            return failed(step, order, error)
        finally:
            told.over = True

    @contextmanager
    def _confined(self, memory: int | None) -> Iterator[None]:
        """While the step runs, let a signal stop it, and limit this OS process to so many bytes of its own."""
        soft, hard = self._allowed
        if memory is not None:
            resource.setrlimit(resource.RLIMIT_DATA, (memory if hard < 0 else min(memory, hard), hard))
        try:
            self._busy = True
            yield
        finally:
            self._busy = False
            if memory is not None:
                resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))

    def _call(self, step: Step[Any, Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if not iscoroutinefunction(step.function):
            return step.function(*args, **kwargs)

        async def run() -> Any:
            task = asyncio.current_task()
            assert task is not None
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._cancel, task)
            return await step.function(*args, **kwargs)

        return asyncio.run(run())

    def _cancel(self, task: asyncio.Task[Any]) -> None:
        self._stopped = True
        task.cancel()


class OrderedAttempt:
    """The attempt as the step sees it, whose heartbeats go to the worker."""

    def __init__(self, child: ChildMain, order: Order) -> None:
        self.child = child
        self.over = False
        self.timeout = order.timeout
        self.deadline = child.machine.monotonic() + order.timeout
        self.attempt = Attempt(
            process=Process(id=id_bytes(order.process), kind=order.kind, key=order.process_key, input=b"[]"),
            step=order.step,
            number=order.number,
            idempotency_key=order.idempotency_key,
            extend=self._extend,
            left=lambda: self.deadline - child.machine.monotonic(),
            last_progress=payload.decode(bytes(order.last_progress)),
            undoes=order.undoes,
            show=_nowhere,
            context=order.context,
        )

    def itself(self) -> Attempt:
        """The attempt."""
        return self.attempt

    def _extend(self) -> None:
        if self.over:
            return  # a thread that the step left behind: the cell may be in another attempt by now
        self.deadline = self.child.machine.monotonic() + self.timeout
        self.child.say(StepBeat(Raw(payload.encode(self.attempt.last_progress, limit=ATTRIBUTES_BYTES))))


def _nowhere(name: str, raw: bytes) -> None:
    raise DefinitionError(
        "a hard step runs apart and cannot publish. Return the value, and publish it in the workflow."
    )


def found(order: Order) -> Step[Any, Any]:
    """The step of an order, once its module is imported; raises LookupError."""
    step = HARD.get(order.key)
    if step is None:
        enter(order.source)
        step = HARD.get(order.key)
    if step is None:
        raise LookupError(
            f"importing {order.source} defines no hard step {order.key}. Define it at the top of a module, always."
        )
    return step


def enter(source: str) -> None:
    """Import a part of the application; a program that would run its engine again is stopped."""
    isolation.entering = True
    try:
        module_of(source)
    finally:
        isolation.entering = False


def failed(step: Step[Any, Any], order: Order, error: BaseException) -> StepRaised:
    """The answer for a step that raised; whether its policy retries is decided here, where the error itself is."""
    spent = isinstance(error, MemoryError)
    if spent and order.memory is not None:
        told = MemoryError(
            f"the step wanted more memory than its limit of {order.memory / 2**20:,.6g} MiB, which counts all that "
            "its OS process has allocated. Raise memory=, or have it take less at a time"
        )
        told.__cause__ = error
        error = told
    error = answered(error)
    classes = tuple(one.__qualname__ for one in type(error).__mro__)
    return StepRaised(step.failure(error, order.number), step.retry.retries(error), spent, classes)


def die_with(lifeline: int) -> None:
    """End this OS process, and all that it started, when the pipe's other end is closed: the worker has died.

    On Linux the kernel does it, even while this OS process is busy in C; elsewhere a thread does.
    """
    group = os.getpgrp()
    if sys.platform == "linux":
        with suppress(OSError):  # a sandbox may not support it: then the thread must do
            fcntl.fcntl(lifeline, fcntl.F_SETOWN, -group)
            fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
            fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)

    def watch() -> None:
        os.read(lifeline, 1)  # also for a worker that died before we came here
        os.killpg(group, signal.SIGKILL)

    Thread(target=watch, name="perdure lifeline", daemon=True).start()


def be_first_to_go() -> None:
    """When the machine runs out of memory, have the kernel kill this OS process and not its worker."""
    score = Path("/proc/self/oom_score_adj")
    with suppress(OSError, ValueError):
        score.write_text(str(min(int(score.read_text()) + SCORE, 1000)))


def live(channel: int, lifeline: int, sources: Sequence[str]) -> NoReturn:
    """Import the application, and run hard steps until the worker hangs up."""
    for received in (channel, lifeline):
        os.set_inheritable(received, False)
    die_with(lifeline)
    be_first_to_go()
    faulthandler.enable(all_threads=False)
    for source in sources:
        try:
            enter(source)
        except DefinitionError as error:  # perhaps nobody needs it here; a step that does will fail
            sys.stderr.write(f"perdure: a cell could not import all of {source} and goes on without: {error}\n")
    ChildMain(socket.socket(fileno=channel), Computer()).live()
    sys.exit()
