"""Mutation: examples changed a little, over and over, by a seeded chance; the fuzzer that needs no library.

It does not look at which lines were reached: its examples have to lead deep enough. Where atheris is installed,
that looks, and makes its own.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from types import FrameType

from tests.fuzz.entry import Entry

PATIENCE_SECONDS = 5
"""What a parser needs longer than this for is a find."""
LONGEST = 4096
TOKENS = (
    b"\0", b"\xff", b"\xc1", b"\xed\xa0\x80", b"\xf0\x9f\x98\x80", b"\\u0000", b"\\ud800", b"\x1b[31m", b"\xc2\x9b",
    b"\xe2\x80\xae", b"[", b"]", b"{", b"}", b'"', b":", b",", b"\\", b"null", b"true", b"NaN", b"1e999", b"-0.0",
    b"9" * 40, b"[" * 200, b'{"a":' * 80, b'{"":', b" ", b"\n", b"=", b"%", b"%00", b"%zz", b"@", b"/", b"//", b"?",
    b"#", b"--", b";", b"'", b"inf", b"nan", b"_", b"\xd9\xa3", b"\x7f", b".", b"1" * 4400, b"[" * 3000,
)  # fmt: skip


class Find(AssertionError):
    """An input that an entry neither took nor refused as it should."""

    def __init__(self, entry: Entry, raw: bytes, error: BaseException) -> None:
        super().__init__(f"{entry.name}: {raw!r:.400} ends with {type(error).__name__}: {str(error)[:500]}")
        self.raw = raw


def mutated(seeds: tuple[bytes, ...], chance: Random) -> bytes:
    """One of the examples, changed in a few places."""
    raw = bytearray(chance.choice(seeds))
    for _ in range(chance.choice((1, 1, 2, 3, 5, 8))):
        at = chance.randrange(len(raw) + 1)
        match chance.randrange(7):
            case 0:
                raw[at:at] = chance.choice(TOKENS)
            case 1:
                raw[at : at + 1] = bytes([chance.randrange(256)])
            case 2:
                del raw[at : at + chance.randrange(1, 9)]
            case 3:
                other = chance.choice(seeds)
                begin = chance.randrange(len(other) + 1)
                raw[at:at] = other[begin : begin + chance.randrange(1, 40)]
            case 4:
                raw[at : at + 1] = bytes([raw[at] ^ 1 << chance.randrange(8)]) if at < len(raw) else b""
            case 5:
                raw[at:at] = raw[at : at + chance.randrange(1, 20)] * chance.randrange(1, 4)
            case _:
                raw[at : at + len(chance.choice(TOKENS))] = chance.choice(TOKENS)
    return bytes(raw[:LONGEST])


@contextmanager
def patience(seconds: int) -> Iterator[None]:
    """Raise TimeoutError if the block takes longer."""

    def over(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"it took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def try_one(entry: Entry, raw: bytes) -> Find | None:
    """Feed the entry once; what was found, if something was."""
    try:
        entry.feed(raw)
    except Exception as error:
        found = Find(entry, raw, error)
        found.__cause__ = error
        return found
    return None


def shortest(entry: Entry, found: Find) -> Find:
    """The same find with fewer bytes, as far as leaving out parts goes."""
    kind, size = type(found.__cause__), max(len(found.raw) // 2, 1)
    while size:
        for at in range(0, len(found.raw), size):
            again = try_one(entry, found.raw[:at] + found.raw[at + size :])
            if again is not None and type(again.__cause__) is kind:
                found = again
                break
        else:
            size //= 2
    return found


def hunt(entry: Entry, seed: int, more: Callable[[int], bool]) -> int:
    """Feed the examples, then changed ones while ``more`` of the number fed so far; how many. Raises Find."""
    chance = Random(f"{entry.name} {seed}")
    fed = 0
    for raw in entry.seeds:
        with patience(PATIENCE_SECONDS):
            if found := try_one(entry, raw):
                raise found from found.__cause__
        fed += 1
    while more(fed):
        with patience(PATIENCE_SECONDS):
            for _ in range(100):  # an alarm for each would cost more than the feeding
                if found := try_one(entry, mutated(entry.seeds, chance)):
                    break
                fed += 1
        if found:
            with patience(10 * PATIENCE_SECONDS):
                found = shortest(entry, found)
            raise found from found.__cause__
    return fed
