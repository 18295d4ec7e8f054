"""What this program has in use, apart from what its allocators keep free: the size of a program tells both together."""

from __future__ import annotations

import ctypes
import sys
from typing import NamedTuple


class _Mallinfo(ctypes.Structure):
    """What ``mallinfo2`` of glibc 2.33 and later answers, of all its arenas."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


class Allocated(NamedTuple):
    """Objects of up to 512 bytes, which Python's allocator keeps; bytes of larger ones; bytes kept free for such."""

    objects: int
    bytes: int
    free: int


def allocated() -> Allocated:
    """What this program has in use now; without glibc the larger objects are not told and count as none."""
    told = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if told is None:
        return Allocated(sys.getallocatedblocks(), 0, 0)
    told.restype = _Mallinfo
    found = told()
    return Allocated(sys.getallocatedblocks(), found.uordblks + found.hblkhd, found.fordblks)
