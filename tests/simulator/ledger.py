"""A ledger: what the steps of one history have really done, by idempotency key, in the order in which they did it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager

from msgspec import Struct


class Effect(Struct, frozen=True):
    """One attempt's deed, ``at`` virtual microseconds.

    ``kind`` is ``began``, ``failed``, ``done``, ``undoing``, ``undone``, ``late`` if it was told to stop and went on,
    ``surplus`` if its policy allows no such attempt, ``overslept`` if nobody has stopped it in time, or ``astray`` if
    it was given what no step has answered. An undo begins ``beside`` its step if that is under way there yet, and is
    ``unknowing`` if it was given no result.
    """

    kind: str
    process: str
    key: str
    label: str
    attempt: int
    node: str
    at: int
    beside: bool = False


class Ledger:
    """The effects of one history; ``mended`` holds the processes whose cause of failure somebody has mended.

    ``wishes`` counts the wishes to cancel of which a person was told that they are there, ``before`` how many they were
    when the person first had the process begun anew. Others may have been on their way then, and come after it.
    ``seen`` is told of every effect at once, ``under_way`` are the attempts that run, by the OS process ``life``.
    """

    def __init__(
        self,
        now: Callable[[], int] = lambda: 0,
        node: Callable[[], str] = lambda: "",
        life: Callable[[], Hashable] = lambda: None,
    ) -> None:
        self.now = now
        self.node = node
        self.life = life
        self.under_way: Counter[Hashable] = Counter()
        self.seen: Callable[[Effect], None] = lambda effect: None
        self.effects: list[Effect] = []
        self.mended: set[str] = set()
        self.wishes: Counter[str] = Counter()
        self.before: dict[str, int] = {}

    def begins_anew(self, process: str) -> None:
        """A person is about to have a process begun anew."""
        self.before.setdefault(process, self.wishes[process])

    def note(self, kind: str, process: str, key: str, label: str, attempt: int) -> None:
        """Write one effect down."""
        beside = kind == "undoing" and self.under_way[self.life(), process, label] > 0
        effect = Effect(kind, process, key, label, attempt, self.node(), self.now(), beside)
        self.effects.append(effect)
        self.seen(effect)

    @contextmanager
    def running(self, process: str, label: str) -> Iterator[None]:
        """An attempt runs for as long as this lasts."""
        slot = self.life(), process, label
        self.under_way[slot] += 1
        try:
            yield
        finally:
            self.under_way[slot] -= 1

    def tried_otherwise(self, key: str, label: str) -> int:
        """How many attempts under that key were of another step: newer code has asked for it at the same place.

        Older code that takes over counts them too, where the history does not tell the two apart.
        """
        return sum(effect.kind == "failed" and effect.key == key and effect.label != label for effect in self.effects)

    def of(self, kind: str, key: str) -> Iterator[Effect]:
        """The effects of a kind under one key."""
        return (effect for effect in self.effects if effect.kind == kind and effect.key == key)


class Desk:
    """Where the ledger of the history that is running lies; steps of any node find it here.

    ``die`` ends the worker in which a step runs; outside of a simulation nobody does. ``threads`` says that steps which
    need not wait run in threads, ``starved`` whether the system refuses descriptors there now.
    """

    ledger = Ledger()
    die: Callable[[], Awaitable[None]] | None = None
    threads = False
    starved: Callable[[], bool] = staticmethod(lambda: False)
