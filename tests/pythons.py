"""The quick tests with every Python that Perdure is for and that is installed here; ``make pythons`` runs this.

A version is looked for by its name (``python3.12``) and among those of pyenv. Each gets a virtual environment of its
own.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")


def main() -> int:
    """Run them one after the other; the answer is 0 if none has failed."""
    told = {version: _tried(version) for version in VERSIONS}
    for version, outcome in told.items():
        print(f"Python {version}: {outcome}")
    return int("failed" in told.values())


def _tried(version: str) -> str:
    python = found(version)
    if python is None:
        return "not found here"
    print(f"Python {version}: {python}", flush=True)
    words = ["make", "--no-print-directory", f"VENV=.venvs/{version}", f"PYTHON={python}", "quick"]
    return "passed" if subprocess.run(words, cwd=ROOT).returncode == 0 else "failed"


def found(version: str) -> str | None:
    """The command that starts this version of Python, if there is one that does."""
    return next((python for python in _candidates(version) if _is(version, python)), None)


def _candidates(version: str) -> Iterator[str]:
    yield f"python{version}"
    root = _said("pyenv", "root")
    if root:
        yield from map(str, sorted(Path(root, "versions").glob(f"{version}.*/bin/python"), reverse=True))


def _is(version: str, python: str) -> bool:
    """Whether it starts, and is that version: a name may belong to a program that only looks for a Python."""
    return _said(python, "-c", "import sys; print('{}.{}'.format(*sys.version_info))") == version


def _said(*words: str) -> str:
    """What a command prints, or nothing if it fails or is not there."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=30)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


if __name__ == "__main__":
    sys.exit(main())
