"""Where one run of one contestant happens: a fresh database, a scratch folder, and the OS processes started for it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from typing import Any

from bench.contestant import ROOT, Contestant
from bench.database import Cluster
from bench.driver import ANSWER, READY

START_SECONDS = 60.0


class DriverFailed(Exception):
    """A driver ended without an answer or did not end in time; the text has the last lines it wrote."""


class Seat:
    """Gives a contestant a fresh store and runs its driver's roles there; leaving ends every OS process it started."""

    def __init__(self, who: Contestant, cluster: Cluster) -> None:
        self.who = who
        self.cluster = cluster
        self.scratch = tempfile.mkdtemp(prefix="perdure-seat-")
        self.name = cluster.database() if who.store == "postgres" else ""
        self.groups: list[subprocess.Popen[str]] = []
        self.listeners: list[threading.Thread] = []

    def __enter__(self) -> Seat:
        return self

    def __exit__(self, *_: object) -> None:
        for started in self.groups:
            end_group(started)
        for listener in self.listeners:
            listener.join()
        if self.name:
            self.cluster.drop(self.name)
        shutil.rmtree(self.scratch, ignore_errors=True)

    @property
    def url(self) -> str:
        """The address of the store in the words of the contestant."""
        if self.who.store == "sqlite":
            return f"sqlite:///{self.file}"
        return self.cluster.url(self.name).replace("postgresql", self.who.scheme, 1) if self.name else ""

    @property
    def file(self) -> str:
        """The SQLite file."""
        return os.path.join(self.scratch, "store.db")

    def spawn(self, role: str, **asked: Any) -> subprocess.Popen[str]:
        """Start a role of the driver as an OS process group of its own."""
        task = {"url": self.url, "scratch": self.scratch, "variant": self.who.variant, "parent": os.getpid(), **asked}
        with open(os.path.join(self.scratch, "errors.log"), "ab") as errors:
            started = subprocess.Popen(
                [*self.who.under, self.who.python, "-m", self.who.module, role, json.dumps(task)],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=ROOT,
                env=self.who.environment(),
                start_new_session=True,
            )
        self.groups.append(started)
        return started

    def run(self, role: str, seconds: float = 180.0, **asked: Any) -> dict[str, Any]:
        """Run a role to its end and give its answer."""
        return self.answer(self.spawn(role, **asked), role, seconds)

    def answer(self, started: subprocess.Popen[str], role: str, seconds: float) -> dict[str, Any]:
        """The answer of a role that was started, once it has ended."""
        try:
            out, _ = started.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise DriverFailed(f"{self.who.name} {role}: no answer within {seconds:.0f} s\n{self.errors()}") from None
        finally:
            if role != "prepare":
                end_group(started)
                self.groups.remove(started)
        for line in reversed(out.splitlines()):
            if line.startswith(ANSWER):
                answer: dict[str, Any] = json.loads(line.removeprefix(ANSWER))
                return answer
        raise DriverFailed(f"{self.who.name} {role}: no answer\n{self.errors()}")

    def prepare(self) -> None:
        """Create the schema; an engine with a server of its own starts it now, and it stays."""
        self.run("prepare", 60.0)

    def worker(self, role: str = "worker") -> subprocess.Popen[str]:
        """Start a worker and wait until it takes work."""
        started = self.spawn(role)
        heard = threading.Event()

        def listen() -> None:
            assert started.stdout is not None
            with started.stdout as lines:
                for line in lines:
                    if line.startswith(READY):
                        heard.set()

        self.listeners.append(threading.Thread(target=listen, daemon=True))
        self.listeners[-1].start()
        if not heard.wait(START_SECONDS):
            raise DriverFailed(f"{self.who.name}: the worker did not become ready\n{self.errors()}")
        return started

    def errors(self) -> str:
        """The last lines that the drivers wrote to their error output."""
        try:
            with open(os.path.join(self.scratch, "errors.log"), errors="replace") as file:
                return "".join(file.readlines()[-15:])
        except OSError:
            return ""


def end_group(started: subprocess.Popen[str]) -> None:
    """End an OS process that we started, with everything in its group."""
    try:
        os.killpg(started.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    started.wait()
