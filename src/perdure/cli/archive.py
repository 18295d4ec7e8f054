"""Export and import at the terminal: processes as lines of JSON, kept, moved, or rehearsed elsewhere."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from io import TextIOWrapper
from typing import Annotated

from cyclopts import Parameter

from perdure.cli import exit_code, output
from perdure.cli.options import DEFAULT_URL, Json, Switch, Url, connected
from perdure.client.archive import Imported, NotImported
from perdure.errors import InvalidInput
from perdure.retention.archive_file import files, opened

Redacted = Annotated[list[str] | None, Parameter(name="--redact", negative="")]
_SHOWN = 20


async def export(
    where: str = "",
    *,
    kind: str | None = None,
    redact: Redacted = None,
    former: Switch = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Write processes and their histories as lines of JSON.

    Children for which one waits follow it. What cannot be opened, since
    $PERDURE_SEAL names no codecs, is written sealed; everything else is
    written open: redact what must not leave the database.

    Parameters
    ----------
    where
        Only processes that fit this query: "kind = order and age < 2d".
    kind
        Only processes of this kind.
    redact
        Replace texts and numbers of these parts: input, result, error, state, progress, events, messages, attributes or
        attributes.card; several with commas.
    former
        Write the events of former runs too.
    """
    parts = [part for text in redact or () for part in text.split(",")]
    async with connected(url) as engine:
        lines = engine.archive.export(where, kind=kind, redact=parts, former=former)
        async for line in lines:
            _write(line)


async def import_(file: str, *, copy: str | None = None, json: Json = False, url: Url = DEFAULT_URL) -> int:
    """Take over the processes that perdure export has written.

    Each keeps its id, and is taken once however often the file is imported.
    Ended ones stay ended; the others go on here.

    Parameters
    ----------
    file
        The file, which may be compressed with gzip, the folder with such files, or - for the input.
    copy
        Make forks of unfinished processes, with new ids that follow from this name.
    """
    lines = _Lines(file)
    async with connected(url) as engine:
        found = await engine.archive.load(lines, copy=copy)
    found = replace(found, refused=[lines.named(one) for one in found.refused])
    if json:
        output.show_json(found)
    else:
        _show(found)
    return exit_code.DONE if found.complete else exit_code.FAILED


def _write(line: bytes) -> None:
    """Write a line as it is, whatever the terminal's encoding: its digest counts its bytes."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.buffer.write(line)
    else:
        sys.stdout.write(line.decode())


class _Lines:
    """The lines of a file, of a folder's files, the newest first, or of the input; raises InvalidInput."""

    def __init__(self, path: str) -> None:
        self._files = None if path == "-" else files(path)
        self._begun: list[tuple[int, str]] = []

    def __iter__(self) -> Iterator[bytes]:
        if self._files is None:
            yield from sys.stdin.buffer
            return
        number = 0
        for file in self._files:
            self._begun.append((number, file.name))
            try:
                with opened(file) as lines:
                    for line in lines:
                        number += 1
                        yield line
            except OSError as error:
                text = f"cannot read {str(file)!r:.200}: {error.strerror}; give a file of `perdure export`"
                raise InvalidInput(text) from None

    def named(self, refused: NotImported) -> NotImported:
        """The refused line with its file, and its number there, if there are several files."""
        if self._files is None or len(self._files) == 1:
            return refused
        before, file = max((number, name) for number, name in self._begun if number < refused.line)
        line = refused.line - before
        why = re.sub(f"^line {refused.line} ", f"line {line} ", refused.why)
        return replace(refused, line=line, why=why, file=file)


def _show(found: Imported) -> None:
    output.show(f"{found.taken:,} processes taken, {found.there:,} were here already")
    for one in found.refused[:_SHOWN]:
        place = f"{one.file}, line {one.line}" if one.file else f"line {one.line}"
        output.show(f"{place} refused{one.process and f' (process {one.process})'}: {one.why}")
    if len(found.refused) > _SHOWN:
        output.show(f"{len(found.refused):,} lines were refused, {_SHOWN} of them are shown; --json shows all")
    for id in found.waiting[:_SHOWN]:
        output.show(f"process {id} waits for a child that is not here: export it with its children, and import that")
    for id in found.unknown[:_SHOWN]:
        output.show(f"the children of process {id} are not known here: import the file once more with $PERDURE_SEAL")
    if len(found.unknown) > _SHOWN:
        output.show(f"the children of {len(found.unknown):,} processes are not known here; --json shows all")
    if len(found.waiting) > _SHOWN:
        output.show(f"{len(found.waiting):,} processes wait for children that are not here; --json shows all")
