"""A walkthrough: a page of the guide, done as a reader would do it, and held to what it promises.

* A ``python`` or ``toml`` block whose first line names a file (``# shop.py``) is that file; any other one is run, after
  those before it on the page.
* In a ``console`` block, lines that begin with ``$`` are commands, the others what they print: in this order, perhaps
  with more between them, spaces not counted, ``…`` for anything. ``# fails`` after a command: it must fail.
* A ``console`` block marked ``terminal=2`` is another terminal: its commands go on while the page does, until ``^C``.
* Numbers from 4700 to 4799 stand for the ids of OS processes, each for the one that it was first seen as.
"""

from __future__ import annotations

import ast
import asyncio
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from inspect import iscoroutine
from pathlib import Path
from typing import Any

from perdure.authoring.workflow import DEFINED, Workflow
from tests.prepared import prepared
from tests.source import SOURCE

FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```", re.M | re.S)
PID = re.compile(r"\b47\d\d\b")
PATIENCE_SECONDS = 20.0
COMMAND_SECONDS = 120.0


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, its marks, its text, and the line of the page where it begins."""

    language: str
    marks: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(found[1], found[2].strip(), found[3], text.count("\n", 0, found.start()) + 1)
        for found in FENCE.finditer(text)
    ]


class Walkthrough:
    """One page, followed in an empty folder."""

    def __init__(self, page: Path, folder: Path) -> None:
        self.page = page
        self.folder = folder
        self.names: dict[str, Any] = {"__name__": page.stem}
        self.pids: dict[str, str] = {}
        self.terminals: list[tuple[subprocess.Popen[bytes], Path]] = []
        self.programs = folder / ".bin"
        self.environment = self._environment()

    def follow(self) -> None:
        """Do everything that the page says."""
        sys.path.insert(0, str(self.folder))
        others = _workflows_of_others()
        for key in others:
            del DEFINED[key]  # or a worker of this page would host them, and run what they do by a schedule
        try:
            for block in blocks(self.page):
                if block.language in ("python", "toml"):
                    self._python(block)
                elif block.language == "console":
                    self._console(block)
        finally:
            for terminal, _ in self.terminals:
                self._end(terminal)
            sys.path.remove(str(self.folder))
            for name in [name for name, module in sys.modules.items() if self._is_ours(module)]:
                del sys.modules[name]
            for key in _workflows_of_others():
                del DEFINED[key]
            DEFINED.update(others)

    def _is_ours(self, module: object) -> bool:
        return str(getattr(module, "__file__", None) or "").startswith(str(self.folder))

    def _environment(self) -> dict[str, str]:
        self.programs.mkdir()
        self._program("python", python := shlex.join(prepared().command))
        self._program("perdure", f"{python} -m perdure")
        self._program("pytest", f"{python} -m pytest")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PERDURE_", "PYTEST_"))}
        return kept | {
            "PATH": f"{self.programs}{os.pathsep}{os.environ.get('PATH', '')}",
            "PYTHONPATH": os.pathsep.join([SOURCE, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
            "COLUMNS": "200",
        }

    def _program(self, name: str, command: str) -> None:
        """Let this name stand for that command, with arguments behind it."""
        program = self.programs / name
        program.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        program.chmod(0o755)

    def _python(self, block: Block) -> None:
        named = re.match(r"# (\S+\.(py|jsonl|toml))\n", block.text)
        if named is not None:
            (self.folder / named[1]).write_text(block.text, encoding="utf-8")
            return
        source = "\n" * block.line + block.text
        code = compile(source, str(self.page), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        before = Path.cwd()
        os.chdir(self.folder)
        try:
            made = eval(code, self.names)
            if iscoroutine(made):
                asyncio.run(self._in_time(block, made))
        finally:
            os.chdir(before)

    async def _in_time(self, block: Block, made: Coroutine[Any, Any, object]) -> None:
        """Run what a reader would wait for; a page that waits for ever is wrong, and says where."""
        try:
            async with asyncio.timeout(COMMAND_SECONDS) as patience:
                await made
        except TimeoutError:
            assert not patience.expired(), f"{self._where(block)}: it has not ended within {COMMAND_SECONDS:g} s"
            raise

    def _console(self, block: Block) -> None:
        for command, expected in _commands(block.text):
            if command == "^C":
                terminal, log = self.terminals.pop()
                self._end(terminal)
                self._compare(block, command, expected, log.read_text())
            elif "terminal=2" in block.marks:
                self._begin(block, command, expected)
            else:
                self._run(block, command, expected)

    def _run(self, block: Block, command: str, expected: list[str]) -> None:
        command, fails, _ = command.partition("  # fails")
        command = PID.sub(lambda found: self.pids.get(found[0], found[0]), command)
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
        )
        said = done.stdout + done.stderr
        assert bool(done.returncode) == bool(fails), f"{self._where(block)}: {command}: exit {done.returncode}\n{said}"
        self._compare(block, command, expected, said)

    def _begin(self, block: Block, command: str, expected: list[str]) -> None:
        log = self.folder / f".terminal-{len(self.terminals)}-{block.line}.log"
        with log.open("wb") as file:
            terminal = subprocess.Popen(
                ["sh", "-c", f"exec {command}"], cwd=self.folder, env=self.environment, stdout=file, stderr=file,
                start_new_session=True,
            )  # fmt: skip
        self.terminals.append((terminal, log))
        limit = time.monotonic() + PATIENCE_SECONDS
        while self._missing(expected, log.read_text()) and time.monotonic() < limit and terminal.poll() is None:
            time.sleep(0.02)  # for the other terminal, as a reader waits for it
        self._compare(block, command, expected, log.read_text())

    def _end(self, terminal: subprocess.Popen[bytes]) -> None:
        if terminal.poll() is None:
            terminal.send_signal(signal.SIGINT)
        try:
            terminal.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(terminal.pid, signal.SIGKILL)

    def _compare(self, block: Block, command: str, expected: list[str], said: str) -> None:
        missing = self._missing(expected, said)
        assert missing is None, f"{self._where(block)}: after `{command}` there is no line like\n{missing}\nin\n{said}"

    def _missing(self, expected: list[str], said: str) -> str | None:
        """The first expected line that was not said, if any."""
        lines = iter([" ".join(line.split()) for line in said.splitlines()])
        for wanted in expected:
            for line in lines:
                if self._fits(wanted, line):
                    break
            else:
                return wanted
        return None

    def _fits(self, wanted: str, line: str) -> bool:
        pattern, names = "", []
        for part in re.split(r"(…|\b47\d\d\b)", " ".join(wanted.split())):
            if part == "…":
                pattern += ".*"
            elif PID.fullmatch(part) and part not in self.pids:
                pattern += r"(\d+)"
                names.append(part)
            else:
                pattern += re.escape(self.pids.get(part, part))
        found = re.fullmatch(pattern, line)
        if found is None:
            return False
        self.pids.update(zip(names, found.groups(), strict=True))
        return True

    def _where(self, block: Block) -> str:
        return f"{self.page.name}:{block.line}"


def _workflows_of_others() -> dict[tuple[str, str], Workflow[Any, Any]]:
    """What this program has defined so far outside Perdure itself: by the tests before, or by a page."""
    return {
        key: workflow
        for key, workflow in list(DEFINED.items())
        if not workflow.function.__module__.startswith("perdure.")
    }


def _commands(text: str) -> list[tuple[str, list[str]]]:
    """The commands of a console block, each with the lines that it prints."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif line.strip() == "^C":
            found.append(("^C", []))
        elif line.strip() and line.strip() != "…" and found:
            found[-1][1].append(line)
    return found
