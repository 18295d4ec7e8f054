"""How people put a backup back: of a SQLite file and of a PostgreSQL database, while clients run."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

from perdure.testing.postgres import binaries

Restore = Callable[[], None]
"""Puts back what was there when the backup was taken."""
Backup = Callable[[str, Path], Restore]
"""Takes a backup of the database that a URL names, into a folder."""
AGAIN = 5
"""How often people give a command, at most, that the server ends as one of a deadlock."""


def file_of(url: str) -> Path:
    """The file of a SQLite store."""
    return Path(url.removeprefix("sqlite:///"))


def copied(source: Path, target: Path) -> None:
    """Copy a database as the program `sqlite3` does with .backup and .restore."""
    with closing(sqlite3.connect(source, timeout=10)) as old, closing(sqlite3.connect(target, timeout=10)) as new:
        old.backup(new)


def restored(url: str, folder: Path) -> Restore:
    """`.backup`, later `.restore`, into the living database."""
    file, copy = file_of(url), folder / "copy.db"
    copied(file, copy)
    return lambda: copied(copy, file)


def dumped(url: str, folder: Path) -> Path:
    """What pg_dump writes."""
    to = folder / "copy.dump"
    _run("pg_dump", "--format=custom", f"--file={to}", url)
    return to


def dropped_and_restored(url: str, folder: Path) -> Restore:
    """`pg_restore --clean`: tables, functions and types are dropped and made anew under their users.

    It locks one table after the other as its users do, in an order of its own: if the server ends it as one of a
    deadlock, all of it is undone and people give the command again.
    """
    dump = dumped(url, folder)
    command = ("pg_restore", "--clean", "--if-exists", "--single-transaction", f"--dbname={url}", str(dump))

    def restore() -> None:
        for _ in range(AGAIN):
            done = _tried(*command)
            if "deadlock detected" not in done.stderr:
                break
        assert done.returncode == 0, done.stderr

    return restore


def database_made_anew(url: str, folder: Path) -> Restore:
    """`DROP DATABASE`, `CREATE DATABASE`, `pg_restore`."""
    dump = dumped(url, folder)
    parts = urlsplit(url)
    name = parts.path.strip("/")
    other = parts._replace(path="/postgres").geturl()

    def restore() -> None:
        for sql in (f"DROP DATABASE {name} WITH (FORCE)", f"CREATE DATABASE {name}"):
            _run("psql", "--quiet", f"--dbname={other}", f"--command={sql}")
        _run("pg_restore", f"--dbname={url}", str(dump))

    return restore


def _run(program: str, *arguments: str) -> None:
    done = _tried(program, *arguments)
    assert done.returncode == 0, done.stderr


def _tried(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = shutil.which(program, path=str(binaries())) or program
    return subprocess.run([path, *arguments], capture_output=True, text=True, check=False, timeout=60)
