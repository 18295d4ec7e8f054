"""A terminal: the program as a person has it before them, in this OS process or in one of its own."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any

from perdure.cli.app import run
from tests.prepared import prepared as python
from tests.source import PYTHONPATH

PATIENCE_SECONDS = 30.0


@dataclass(frozen=True)
class Said:
    """What one command line came to."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its output as JSON."""
        return json.loads(self.out)

    def has(self, *words: str) -> bool:
        """Whether one line of the output holds all these words, spaces not counted."""
        return any(all(word in " ".join(line.split()) for word in words) for line in self.out.splitlines())


class Terminal:
    """Carries out command lines on one store."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(self, *words: str) -> Said:
        """Run a command line here, on the store; it must do without signals and OS processes of its own."""
        return self.bare(*words, "--url", self.url)

    def bare(self, *words: str, stream: Callable[[], io.StringIO] = io.StringIO) -> Said:
        """Run a command line here just as it is, with such streams for its outputs."""
        out, err = stream(), stream()
        with redirect_stdout(out), redirect_stderr(err):
            code = run(words)
        return Said(code, out.getvalue(), err.getvalue())

    def program(self, *words: str, prepared: bool = True, **environment: str) -> Program:
        """Start the program as an OS process, unless it is ``prepared`` with a start of its own."""
        return Program(["-m", "perdure", *words], {"PERDURE_URL": self.url, **environment}, prepared=prepared)


class Program:
    """A running program, and every line that it has written."""

    def __init__(self, words: list[str], environment: dict[str, str], *, prepared: bool = True) -> None:
        """Start ``python`` with these words, forked from the prepared one or as a person would."""
        whole = {**os.environ, "PYTHONPATH": PYTHONPATH, **environment}
        said, say = os.pipe()
        with open(os.devnull) as nothing, open(say, "wb"):
            streams = (nothing.fileno(), say, say)
            self.process = python().start(words, whole, streams) if prepared else _started(words, whole, streams)
        self._said = open(said)  # noqa: SIM115 (closed when it has ended)
        self.lines: list[str] = []
        self.ended = False
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._said:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self.ended = True
            self._changed.notify_all()

    def line_with(self, words: str, *, count: int = 1) -> str:
        """The count-th line that holds these words, waited for."""
        return self._wait(lambda: [line for line in self.lines if words in line][count - 1 :], words)[0]

    def _wait(self, found: Callable[[], list[str]], words: str) -> list[str]:
        with self._changed:
            self._changed.wait_for(lambda: bool(found()) or self.ended, PATIENCE_SECONDS)
            if not found():
                raise AssertionError(f"nobody said {words!r}; said was:\n" + "\n".join(self.lines))
            return found()

    def pid_hosting(self, count: int = 1) -> int:
        """The OS process id of the count-th worker that has said that it is ready."""
        return int(self.line_with(" hosts ", count=count).partition("worker ")[2].split()[0])

    def signal(self, what: int) -> None:
        """Send a signal to the program itself."""
        self.process.send_signal(what)

    def wait(self) -> int:
        """Wait for its end; the answer is its exit code."""
        code = self.process.wait(PATIENCE_SECONDS)
        self._reader.join(PATIENCE_SECONDS)
        self._said.close()
        return code

    def end(self) -> None:
        """Make sure that nothing of it is left."""
        try:
            os.killpg(self.process.pid, 9)
        except ProcessLookupError:
            pass
        self.wait()


def _started(words: list[str], environment: dict[str, str], streams: tuple[int, int, int]) -> subprocess.Popen[bytes]:
    """Python itself."""
    stdin, stdout, stderr = streams
    return subprocess.Popen(
        [sys.executable, *words], env=environment, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True
    )
