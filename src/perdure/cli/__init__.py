"""The command line: what an operator sees of processes, and tells them."""

from __future__ import annotations

import sys


def main() -> None:
    """The entry of the program ``perdure``; ends the interpreter with the command's exit code."""
    try:
        from perdure.cli.app import run
    except ModuleNotFoundError as missing:
        if missing.name not in ("cyclopts", "rich"):
            raise
        print(f"perdure: the command line needs {missing.name}: run pip install 'perdure[cli]'", file=sys.stderr)
        sys.exit(1)
    sys.exit(run(sys.argv[1:]))
