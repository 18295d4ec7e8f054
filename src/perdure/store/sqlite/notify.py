"""Stores on one SQLite file notify each other at once, by datagrams between the OS processes of one machine.

Each store that watches listens at a Unix socket beside the lock files, which only this user can reach. A store that has
committed something for others sends a hint to all of them, and waits for none. A lost hint costs no more than a
look at the file's version, which goes on beneath. A child OS process inherits no socket, and the next sender removes a
socket without an owner.
"""

from __future__ import annotations

import asyncio
import os
import socket
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from msgspec import MsgspecError, Struct, json

from perdure.clock import Computer
from perdure.store.notifications import Notification

SUFFIX = ".bell"
LONGEST_PATH = 100
"""Bytes of a socket's path that every system takes."""
AT_ONCE = 64
"""So many hints are read in one round of the event loop."""
SETTLED_SECONDS = 0.02
"""Systems record a folder's change time to a few milliseconds: another change within this time may go unnoticed."""

_of_this_process: weakref.WeakSet[Notifier] = weakref.WeakSet()


class Hint(Struct, rename={"notification": "news"}, frozen=True, omit_defaults=True, gc=False):
    """The notification of one transaction, and how many hints (due and done) it has counted in the file."""

    notification: Notification
    due: int = 0
    done: int = 0


_encode = json.Encoder().encode
_decode = json.Decoder(Hint).decode


def read_hint(raw: bytes) -> Hint | None:
    """What a hint says; None if it cannot be read: it is from another version, or was cut."""
    try:
        return _decode(raw)
    except (MsgspecError, ValueError, RecursionError):
        return None


class Notifier:
    """The socket of one store object, and the way to those of the others. ``folder`` is None for one in memory."""

    def __init__(self, folder: Path | None, machine: Computer) -> None:
        self._folder = None if machine.simulated or not hasattr(socket, "AF_UNIX") else folder
        self._machine = machine
        self._name = ""
        self._sender: socket.socket | None = None
        self._receiver: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._peers: tuple[str, ...] = ()
        self._seen = -1
        self._since = 0.0
        self._place = _Place(folder) if self._folder is not None else None
        _of_this_process.add(self)

    def listen(self, listener: Callable[[list[Hint], bool], None]) -> bool:
        """Receive hints from now on; false where that is impossible.

        ``listener`` is called on the running event loop with the hints, and whether some may have been missed.
        """
        if self._folder is None or self._place is None:
            return False
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        except OSError:
            return False
        self._name = self._machine.new_id().hex() + SUFFIX
        loop = asyncio.get_running_loop()
        try:
            receiver.setblocking(False)
            receiver.bind(self._place.of(self._name))
            loop.add_reader(receiver, self._hear, receiver, listener)
        except (OSError, NotImplementedError):
            receiver.close()
            return False
        self._receiver, self._loop = receiver, loop
        return True

    def stop_listening(self) -> None:
        """Receive nothing any more."""
        receiver, self._receiver = self._receiver, None
        if receiver is None or self._folder is None:
            return
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(receiver)
        self._remove(self._name)
        receiver.close()

    def close(self) -> None:
        """Let go of everything."""
        self.stop_listening()
        self.forget()

    def forget(self) -> None:
        """Close what a forked child has a copy of: the socket itself stays its parent's."""
        for end in (self._receiver, self._sender):
            if end is not None:
                end.close()
        self._receiver = self._sender = None
        if self._place is not None:
            self._place.close()

    def notify(self, hint: Hint) -> None:
        """Send a hint to all other stores; called by the thread that has just committed, and waits for nothing.

        Where the system refuses a socket nobody is told: they look by themselves.
        """
        peers = self._others()
        if not peers or self._place is None:
            return
        if self._sender is None:
            try:
                self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            except OSError:  # no descriptor is left, or this program may have no such sockets
                return
            self._sender.setblocking(False)
        told = _encode(hint)
        for name in peers:
            try:
                self._sender.sendto(told, self._place.of(name))
            except ConnectionRefusedError:  # its owner is dead: nobody else ever has a socket of this name
                self._remove(name)
            except OSError:
                continue  # gone, or so full that it will look by itself

    def _others(self) -> tuple[str, ...]:
        """The names of the other sockets; the folder is read again when it has changed."""
        if self._folder is None:
            return ()
        try:
            seen = os.stat(self._folder).st_mtime_ns
            now = self._machine.monotonic()
            if seen != self._seen or now - self._since < SETTLED_SECONDS:
                self._peers = tuple(name for name in os.listdir(self._folder) if name.endswith(SUFFIX))
                self._since = now if seen != self._seen else self._since
                self._seen = seen
        except OSError:
            return ()
        return tuple(name for name in self._peers if name != self._name)

    def _remove(self, name: str) -> None:
        """Remove a socket without an owner; one that cannot be removed now is met again."""
        if self._folder is not None:
            with suppress(OSError):
                (self._folder / name).unlink()
        self._peers = tuple(peer for peer in self._peers if peer != name)

    def _hear(self, receiver: socket.socket, listener: Callable[[list[Hint], bool], None]) -> None:
        hints: list[Hint] = []
        missed = False
        for n in range(AT_ONCE):
            try:
                hint = read_hint(receiver.recv(1 << 18))
            except BlockingIOError:
                break
            except OSError:
                return
            if hint is not None:
                hints.append(hint)
            missed = missed or hint is None or n >= FULL
        listener(hints, missed)


FULL = 8
"""If so many hints wait, others may have found no room: systems let a socket queue ten."""


class _Place:
    """The folder in a socket's address; where its path is too long, the path of a descriptor under /proc."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = str(folder)
        self._handle: int | None = None

    def of(self, name: str) -> str:
        """The address of a socket; raises OSError where there is none."""
        if len(os.fsencode(self._folder)) + 1 + len(name) <= LONGEST_PATH:
            return f"{self._folder}/{name}"
        if self._handle is None:
            self._handle = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return f"/proc/self/fd/{self._handle}/{name}"

    def close(self) -> None:
        """Close the descriptor."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)


def _forget_in_child() -> None:
    for notifier in list(_of_this_process):
        notifier.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
