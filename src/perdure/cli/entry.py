"""The entry of the program ``perdure``, which also speaks when its libraries are not installed."""

from __future__ import annotations

import sys
from io import TextIOWrapper


def main() -> None:
    """Run the program; ends the interpreter with the command's exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # what its encoding does not have is told by its number
            stream.reconfigure(errors="backslashreplace")
    try:
        import rich  # noqa: F401 (most commands need it, and are imported later)

        from perdure.cli.app import run
    except ModuleNotFoundError as missing:
        if missing.name not in ("cyclopts", "rich"):
            raise
        print(f"perdure: the command line needs {missing.name}: run pip install 'perdure[cli]'", file=sys.stderr)
        sys.exit(1)
    sys.exit(run(sys.argv[1:]))
