"""What uses a processor and nothing else, an OS process of its own; it stops at the end of its input.

Arguments: as of every member of a crew; they are not looked at.
"""

from __future__ import annotations

import select
import sys

TURNS = 100_000


def main() -> None:
    """Burn until the input ends."""
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        for _ in range(TURNS):
            pass


if __name__ == "__main__":
    main()
