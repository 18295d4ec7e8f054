"""The command line: what an operator sees of processes, and tells them."""

from perdure.cli.entry import main

__all__ = ["main"]
