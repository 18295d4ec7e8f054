"""What only the garbage collector can free."""

from __future__ import annotations

import gc


def unreachable() -> list[str]:
    """Have the collector look, and name the types of what it finds, with how many there are of each."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        found = [type(one).__qualname__ for one in gc.garbage]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
    return [f"{found.count(name)} × {name}" for name in sorted(set(found))]
