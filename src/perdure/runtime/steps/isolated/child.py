"""A cell: a child OS process in which hard steps run, one at a time, as its worker sees it.

It is forked from a clean interpreter, as the leader of a session and process group of its own; it inherits
nothing but its end of the channel, and a pipe by which the kernel ends it when the worker dies. A kill hits the whole
group: what the step has started dies with it.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from threading import Lock

from perdure.clock import blocking_pair
from perdure.runtime.steps.isolated.fork_server import ForkServer
from perdure.runtime.steps.isolated.protocol import Frames, Said, read_said

RECEIVED_BYTES = 64 * 1024
LAST_WORDS_BYTES = 4096
TOLD_CHARACTERS = 1024
FATAL = "Fatal Python error"
DYING_SECONDS = 1.0


class IsolatedChild:
    """One child OS process: its channel, its stderr, its end. Other threads may call only ``stop`` and ``kill``."""

    def __init__(self, sources: Sequence[str], server: ForkServer) -> None:
        self.calls = 0
        self.killed = False
        self.last_words = b""
        self._lock = Lock()
        self._ended = False
        self._frames = Frames()
        with ExitStack() as undo, ExitStack() as handed:  # each of these may be refused: then none of them stays open
            self._selector = undo.enter_context(selectors.DefaultSelector())
            self._channel, theirs = blocking_pair()
            undo.callback(self._channel.close)
            handed.callback(theirs.close)
            stays, self._lifeline = os.pipe()
            undo.callback(os.close, self._lifeline)
            handed.callback(os.close, stays)
            self._stderr, errors = os.pipe()
            undo.callback(os.close, self._stderr)
            handed.callback(os.close, errors)
            self._server = server
            self._pid = server.fork([theirs.fileno(), stays, errors], sources)
            undo.pop_all()
        os.set_blocking(self._stderr, False)
        self._death = self._watch_for_death()
        for file in (self._channel.fileno(), self._stderr, self._death):
            if file is not None:
                self._selector.register(file, selectors.EVENT_READ)

    @property
    def dead(self) -> bool:
        """Whether it has died or hung up while nobody listened."""
        if self._death is not None:
            return self._death in {key.fd for key, _ in self._selector.select(0)}
        with suppress(BlockingIOError):
            return not self._channel.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        return False

    def order(self, frame: bytes) -> None:
        """Send an order; nothing happens if the cell is not there to read it."""
        self.calls += 1
        with suppress(OSError):  # hear() reports its death
            self._channel.sendall(frame)

    def hear(self) -> Said | None:
        """Wait for its next message; None when it has died and all its messages were read."""
        over = False
        while (body := self._frames.take()) is None:
            if over:
                return None
            ready = {key.fd for key, _ in self._selector.select()}
            if self._stderr in ready:
                self._overhear()
            received = b""
            if self._channel.fileno() in ready:
                with suppress(OSError):
                    received = self._channel.recv(RECEIVED_BYTES)
                self._frames.feed(received)
                over = not received
            over = over or (self._death in ready and not received)
        return read_said(body)

    def stop(self) -> None:
        """Ask it to stop: the step in it may clean up."""
        self._signal(lambda: os.kill(self._pid, signal.SIGTERM))

    def kill(self) -> None:
        """Kill it, and all that it has started."""
        self._signal(lambda: os.killpg(self._pid, signal.SIGKILL))

    def end(self) -> int:
        """Make sure that it is dead and nothing of it is left; return its exit code, negative for a signal."""
        if not self.killed:
            self._await_death()
        with self._lock:
            self._ended = True  # from here on its pid may be reused
            with suppress(OSError):
                os.killpg(self._pid, signal.SIGKILL)
        while self._overhear():
            pass
        code = self._server.reap(self._pid)
        self._selector.close()
        self._channel.close()
        os.close(self._lifeline)
        if self._death is not None:
            os.close(self._death)
        os.close(self._stderr)
        return code

    def _watch_for_death(self) -> int | None:
        """A descriptor that becomes readable when it dies; where there is none, the end of the channel must do."""
        with suppress(AttributeError, OSError):
            return os.pidfd_open(self._pid)
        return None

    def _signal(self, send: Callable[[], None]) -> None:
        with self._lock:
            if not self._ended:
                self.killed = True
                with suppress(OSError):
                    send()

    def _await_death(self) -> None:
        """Hang up, and give it the moment that it needs to exit, so that its own exit code is known."""
        with suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)
        if self._death is None:
            return
        with selectors.DefaultSelector() as waiting:
            waiting.register(self._death, selectors.EVENT_READ)
            waiting.select(DYING_SECONDS)

    def _overhear(self) -> bool:
        """Pass on what it writes to stderr, and remember the end of it."""
        try:
            said = os.read(self._stderr, RECEIVED_BYTES)
        except BlockingIOError:
            return False
        if not said:
            with suppress(KeyError):
                self._selector.unregister(self._stderr)
            return False
        self.last_words = (self.last_words + said)[-LAST_WORDS_BYTES:]
        with suppress(OSError):
            os.write(2, said)
        return True


def telling(output: str) -> str:
    """The part of a crashed child's last output that tells most, in at most twice ``TOLD_CHARACTERS``.

    That is its end. But the stack that the interpreter writes when it crashes begins with the place of the crash, and
    ends with the names of modules, which are left out.
    """
    words, fatal, stack = output.rpartition(FATAL)
    if not fatal:
        return output.strip()[-TOLD_CHARACTERS:]
    lines = [line for line in stack.splitlines() if not line.startswith("Extension modules:")]
    crash = (fatal + "\n".join(lines)).strip()[:TOLD_CHARACTERS]
    return f"{words.strip()[-TOLD_CHARACTERS:]}\n{crash}".strip()
