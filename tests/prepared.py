"""A prepared Python: programs as OS processes of their own, each forked from one that has imported Perdure already.

Most of what a short command costs is to import the program. Here one OS process imports it, once for a whole run of
tests, and is forked for each program: one with an id, arguments, environment, folder, session, streams and exit code of
its own, which is killed if the one who started it is. What a program starts in its turn is a real Python again.
Whether programs start by themselves is proved by ``tests/cli`` and ``tests/examples``.
"""

from __future__ import annotations

import array
import atexit
import gc
import marshal
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NoReturn

READY = b"ready\n"
STREAMS = 3
LENGTH = 8

COMMAND = """
import _socket, marshal, os, signal, sys
passed_on = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
signal.pthread_sigmask(signal.SIG_BLOCK, passed_on)  # the program may run, and be told of, before its pid is heard
place, *words = sys.argv[1:]
link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
link.connect(place)
asked = marshal.dumps((os.getcwdb(), dict(os.environb), words))
streams = b"".join(one.to_bytes(4, sys.byteorder) for one in (0, 1, 2))
link.sendmsg([len(asked).to_bytes(8, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
while asked:
    asked = asked[link.send(asked):]
pid = int.from_bytes(link.recv(8), "big")
for one in passed_on:
    signal.signal(one, lambda number, frame: os.kill(pid, number))
signal.pthread_sigmask(signal.SIG_UNBLOCK, passed_on)
code = os.waitstatus_to_exitcode(int.from_bytes(link.recv(8), "big"))
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""
"""What a shell starts for each program: it hands everything on, signals too, and ends as the program does."""


class Program:
    """A program that was forked, as :class:`subprocess.Popen` would show it.

    Its ``link`` can be read when it has ended.
    """

    def __init__(self, link: socket.socket, pid: int) -> None:
        self.pid = pid
        self.link = link
        self.returncode: int | None = None

    def send_signal(self, what: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            try:
                os.kill(self.pid, what)
            except ProcessLookupError:
                pass

    def poll(self) -> int | None:
        """Its exit code if it has ended, negative if that was by a signal; else None."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end, for so many seconds at most; raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self.link], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("a prepared program", timeout or 0)
            self.returncode = os.waitstatus_to_exitcode(int.from_bytes(_exactly(self.link, LENGTH), "big"))
            self.link.close()
        return self.returncode


class Prepared:
    """The OS process that has imported all, and is forked for each program."""

    def __init__(self, source: str) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._place, command = Path(self._folder.name) / "socket", Path(self._folder.name) / "command.py"
        command.write_text(COMMAND)
        self.command = [sys.executable, "-I", "-S", str(command), str(self._place)]
        """What starts a program where only a shell can: behind it stand the arguments of Python."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PERDURE_")}
        self._server = subprocess.Popen(
            [sys.executable, __file__, source, str(self._place)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**kept, "PYTHONPATH": ""},
        )  # fmt: skip
        assert self._server.stdout is not None
        assert self._server.stdout.readline() == READY

    def start(self, words: Sequence[str], environment: dict[str, str], streams: tuple[int, int, int]) -> Program:
        """Start ``python`` with these arguments in this folder; the streams are descriptors, to be closed by you."""
        link = self.ask(words, environment, streams)
        return Program(link, int.from_bytes(_exactly(link, LENGTH), "big"))

    def ask(self, words: Sequence[str], environment: dict[str, str], streams: tuple[int, int, int]) -> socket.socket:
        """The same, without waiting: the link tells its pid, and then its status; the program ends if it is closed."""
        link = socket.socket(socket.AF_UNIX)
        link.connect(str(self._place))
        held = {os.fsencode(name): os.fsencode(value) for name, value in environment.items()}
        asked = marshal.dumps((os.getcwdb(), held, list(words)))
        socket.send_fds(link, [len(asked).to_bytes(LENGTH, "big")], streams)
        link.sendall(asked)
        return link

    def close(self) -> None:
        """End it; the programs that it was forked for go on."""
        self._server.communicate()
        self._folder.cleanup()


@cache
def prepared() -> Prepared:
    """The one of this run of tests, which ends with it."""
    from tests.source import SOURCE  # the server, which runs this file, has no need of it

    made = Prepared(SOURCE)
    atexit.register(made.close)
    return made


# -- the OS process that is forked -----------------------------------------------------------------------------------


def serve(place: str) -> tuple[list[str], str]:
    """Fork for each program that is asked for; returns only in the OS process that is to be one, with its words."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(place)
    listener.listen(socket.SOMAXCONN)
    os.write(1, READY)
    while listener in select.select([listener, 0], [], [])[0]:  # else the tests have ended
        link, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            return _watched(link)
        link.close()
        _reap()
    sys.exit()


def _reap() -> None:
    """Take note of those that have ended, so that what they cost is counted."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _watched(link: socket.socket) -> tuple[list[str], str]:
    """Fork once more: this OS process tells what became of the program, the other is the program, and returns."""
    head, streams = _received(link)
    folder, environment, words = marshal.loads(_exactly(link, int.from_bytes(head, "big")))  # noqa: S302 (our own)
    # Who ends the tests with their whole group does not reach the program, whose session is another. So this OS process
    # stays until its giver is gone, and ends the program then.
    before = {what: signal.signal(what, signal.SIG_IGN) for what in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    pid = os.fork()
    if pid == 0:
        for what, handler in before.items():
            signal.signal(what, handler)
        link.close()
        os.setsid()
        for number, one in enumerate(streams):
            os.dup2(one, number)
            os.close(one)
        os.environ.clear()
        os.environb.update(environment)
        os.chdir(folder)
        return words, os.fsdecode(folder)
    for one in streams:
        os.close(one)
    for one in range(STREAMS):
        os.close(one)  # else whoever reads what the program prints would wait for this one's end
    threading.Thread(target=_kill_with_its_giver, args=(link, pid), daemon=True).start()
    _tell(link, pid)
    _, status = os.waitpid(pid, 0)
    _tell(link, status)
    os._exit(0)


def _tell(link: socket.socket, what: int) -> None:
    try:
        link.sendall(what.to_bytes(LENGTH, "big"))
    except OSError:
        pass  # the giver is gone: _kill_with_its_giver hears of it too


def _kill_with_its_giver(link: socket.socket, pid: int) -> None:
    """The one who gave the command says nothing more: the connection ends when that OS process does."""
    try:
        link.recv(1)
    except ConnectionResetError:
        pass  # it was gone before it had read what it was told
    os.kill(pid, signal.SIGKILL)


def _received(link: socket.socket) -> tuple[bytes, array.array[int]]:
    streams = array.array("i")
    head, extra, _, _ = link.recvmsg(LENGTH, socket.CMSG_SPACE(STREAMS * streams.itemsize))
    for _level, _kind, data in extra:
        streams.frombytes(data)
    return head, streams


def _exactly(link: socket.socket, length: int) -> bytes:
    found = b""
    while len(found) < length:
        piece = link.recv(length - len(found))
        if not piece:
            raise EOFError("the other end of a prepared program is gone")
        found += piece
    return found


def _import() -> None:
    """Everything that programs import, also what they import late."""
    import asyncio.runners  # noqa: F401
    import sqlite3  # noqa: F401

    import perdure.runtime.worker  # noqa: F401
    from perdure.cli.app import whole_app
    from perdure.runtime import os_process  # noqa: F401
    from perdure.store.postgres import store as postgres  # noqa: F401
    from perdure.store.sqlite import store as sqlite  # noqa: F401

    try:
        import uvloop  # noqa: F401
    except ImportError:
        pass
    whole_app()


def carry_out(words: list[str], folder: str, installed: list[str]) -> None:
    """Do what ``python`` does with these arguments: ``-m`` and a module, ``-c`` and a code, or a file."""
    safe = words[0] == "-P"
    what, *further = words[safe:]
    file = Path(folder, what)
    sys.argv = further if what == "-m" else [what, *further[what == "-c" :]]
    own = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    place = [] if safe else [{"-m": folder, "-c": ""}.get(what, str(file.parent))]
    sys.path[:] = [*place, *own, *(folder for folder in installed if folder not in own)]
    if what == "-m":
        sys.modules.pop(further[0], None)  # it is imported already, but not as the main one
        runpy.run_module(further[0], run_name="__main__", alter_sys=True)
        return
    module = sys.modules["__main__"] = ModuleType("__main__")
    if what == "-c":
        exec(compile(further[0], "<string>", "exec"), vars(module))  # noqa: S102 (as Python does)
    else:
        module.__file__ = str(file)
        exec(compile(file.read_bytes(), str(file), "exec"), vars(module))  # noqa: S102 (as Python does)


def leave(code: int | str | None) -> NoReturn:
    """End as Python does, but leave the objects where they are: to free each would copy all that programs share."""
    if isinstance(code, str):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


def main(source: str, place: str) -> None:
    """Serve, with the Perdure of that source; in an OS process that is to be a program, be it."""
    installed = sys.path[1:]
    sys.path[0] = source
    _import()
    gc.collect()
    gc.freeze()  # no collection writes to what all programs share
    words, folder = serve(place)
    time.tzset()
    for number, former in ((1, sys.stdout), (2, sys.stderr)):  # which know of former files whether these can seek
        stream = open(number, "w", encoding=former.encoding, errors=former.errors, closefd=False)  # noqa: SIM115
        line_by_line = number == 2 or os.isatty(1)
        stream.reconfigure(line_buffering=line_by_line, write_through="PYTHONUNBUFFERED" in os.environ)
        setattr(sys, "stdout" if number == 1 else "stderr", stream)

    def become(_path: str, words: list[str], environment: dict[str, str]) -> NoReturn:
        """What ``os.execve`` does with this Python: go on as another program, without importing all anew."""
        os.environ.clear()
        os.environ.update(environment)
        carry_out(words[1:], os.getcwd(), installed)
        raise SystemExit

    os.execve = become  # type: ignore[assignment]
    try:
        carry_out(words, folder, installed)
        code: int | str | None = 0
    except SystemExit as ended:
        code = ended.code
    leave(code)


if __name__ == "__main__":
    main(*sys.argv[1:])
