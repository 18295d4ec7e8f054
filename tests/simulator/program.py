"""A program: a small tree of what a process is to do, drawn by chance and given to one workflow as its input."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from tests.simulator.chance import Chance, one_in, one_of


class Do(Struct, frozen=True, tag="do"):
    """One step. Its first ``fails`` attempts fail, then it succeeds, or fails for good if it is ``fatal``.

    A fatal one fails by what no attempt can cure, or, if it ``spends`` them, because it has none left.
    ``hangs`` lets its first attempt run over its timeout. An ``undo`` may fail so often too, at last or for good.
    So many attempts as it is ``deadly`` kill their worker, if it is one that can be killed here. Who is ``stubborn``
    goes on when it is told to stop, and answers all the same. ``after`` is the label of the step whose promised result
    it is given.
    """

    label: str
    seconds: float = 0.0
    fails: int = 0
    fatal: bool = False
    hangs: bool = False
    queue: bool = False
    undo: bool = False
    undo_fails: int = 0
    undo_fatal: bool = False
    deadly: int = 0
    stubborn: bool = False
    spends: bool = False
    after: str = ""


class Rest(Struct, frozen=True, tag="rest"):
    """A timer. Its value tells whether it has fired too soon, by the turns' own times."""

    seconds: float


class Line(Struct, frozen=True, tag="line"):
    """One after the other."""

    parts: list[Node]


class Chain(Struct, frozen=True, tag="chain"):
    """Steps, each given the promise of the one before; ``beside`` them another one is awaited before the last."""

    steps: list[Do]
    beside: Do | None = None


class Fork(Struct, frozen=True, tag="fork"):
    """Side by side, by ``gather`` or in a task group."""

    parts: list[Node]
    group: bool = False


class Within(Struct, frozen=True, tag="within"):
    """A part with a time limit. ``late`` says that without faults it is over, else that there is time enough."""

    part: Node
    seconds: float
    late: bool


class Hear(Struct, frozen=True, tag="hear"):
    """So many signals of a name, one after the other. With a timeout nobody sends them, without one somebody does."""

    name: str
    count: int = 1
    timeout: float | None = None


class Say(Struct, frozen=True, tag="say"):
    """A signal to the parent."""

    name: str


class Kin(Struct, frozen=True, tag="kin"):
    """A child process; one that is not awaited is left behind when its parent ends, asked to end, or terminated."""

    part: Node
    abandon: bool = False
    awaited: bool = True
    terminate: bool = False


class Attempted(Struct, frozen=True, tag="attempted"):
    """A part whose failure is caught."""

    part: Node


class Scope(Struct, frozen=True, tag="scope"):
    """A part in a saga of its own."""

    part: Node
    sequential: bool = False


class Guard(Struct, frozen=True, tag="guard"):
    """A part after which a step cleans up, however it is left."""

    part: Node
    cleanup: Do


class Fall(Struct, frozen=True, tag="fall"):
    """The code raises."""

    label: str


class Way(Struct, frozen=True, tag="way"):
    """A change of the code that asks ``patched``: old code knows only the old way.

    A ``careless`` one does not ask: who has come by here before the change, and is replayed after it, cannot go on.
    """

    name: str
    old: Node
    new: Node
    careless: bool = False


Node = Do | Rest | Line | Chain | Fork | Within | Hear | Say | Kin | Attempted | Scope | Guard | Fall | Way


class Program(Struct, frozen=True):
    """What one process does: its body, so many times; between two rounds it continues as new."""

    body: Node
    rounds: int = 1


class Taste(Struct, frozen=True):
    """What the programs of one history may contain, and how large they are; ``scale`` is what a second is worth."""

    features: frozenset[str] = frozenset()
    breadth: int = 3
    depth: int = 2
    scale: float = 1.0


FEATURES = (
    "fork", "rest", "fails", "fatal", "undo", "undo fails", "undo fatal", "queue", "hangs", "within", "hear", "kin",
    "abandon", "say", "attempted", "scope", "guard", "fall", "renew", "way",
    "deadly", "stubborn", "promise",
)  # fmt: skip
"""Everything that may be switched off for a history."""
LATER = frozenset({"promise"})
"""Those that came when others had their seeds: whether a history has them moves nothing else."""

QUICK = 0.02
"""What a second within a time limit is worth, so that without faults there is no doubt about who is first."""
ENOUGH = 30.0
"""Seconds that suffice for a part at that pace, also where a busy machine gives it real ones."""


class Drawing:
    """Draws one program; every label in it is another one."""

    def __init__(self, chance: Chance, taste: Taste, name: str) -> None:
        self.chance = chance
        self.taste = taste
        self.name = name
        self._labels = 0
        self._kindred = 0  # within how many children we are: nobody outside knows their ids

    def program(self) -> Program:
        """A whole program; the boring one is a single step."""
        rounds = 1 + self.chance.draw(3) if self._has("renew") and one_in(self.chance, 3) else 1
        return Program(self._line(self.taste.depth), rounds)

    def _has(self, feature: str) -> bool:
        return feature in self.taste.features

    def _label(self) -> str:
        self._labels += 1
        return f"{self.name}.{self._labels}"

    def _line(self, depth: int, pace: float = 1.0) -> Node:
        parts = [self._node(depth, pace) for _ in range(1 + self.chance.draw(self.taste.breadth))]
        return parts[0] if len(parts) == 1 else Line(parts)

    def _node(self, depth: int, pace: float) -> Node:
        made: list[Callable[[int, float], Node]] = [lambda depth, pace: self._do(pace)]
        simple = {"rest": self._rest, "hear": self._hear, "fall": self._fall, "way": self._way, "promise": self._chain}
        deep = {
            "fork": self._fork, "within": self._within, "kin": self._kin, "attempted": self._attempted,
            "scope": self._scope, "guard": self._guard, "say": self._told,
        }  # fmt: skip
        made += [draw for feature, draw in simple.items() if self._has(feature)]
        if depth > 0:
            made += [draw for feature, draw in deep.items() if self._has(feature)]
        return one_of(self.chance, made)(depth, pace)

    def _seconds(self, pace: float) -> float:
        return one_of(self.chance, (0.0, 0.05, 0.5, 3.0)) * self.taste.scale * pace

    def _do(self, pace: float) -> Do:
        drawn = self.chance
        undo = self._has("undo") and one_in(drawn, 2)
        fatal = self._has("fatal") and one_in(drawn, 8)
        return Do(
            label=self._label(),
            seconds=self._seconds(pace),
            fails=drawn.draw(3) if self._has("fails") and pace == 1.0 and one_in(drawn, 3) else 0,
            fatal=fatal,
            hangs=self._has("hangs") and pace == 1.0 and one_in(drawn, 8),
            queue=self._has("queue") and one_in(drawn, 3),
            undo=undo,
            undo_fails=1 if undo and self._has("undo fails") and one_in(drawn, 4) else 0,
            undo_fatal=undo and self._has("undo fatal") and one_in(drawn, 12),
            deadly=one_of(drawn, (1, 3, 6)) if self._has("deadly") and one_in(drawn, 12) else 0,
            stubborn=self._has("stubborn") and one_in(drawn, 6),
            spends=fatal and self._has("fails") and one_in(drawn, 2),
        )

    def _rest(self, depth: int, pace: float) -> Rest:
        return Rest((0.1 + self._seconds(pace)) * pace)

    def _hear(self, depth: int, pace: float) -> Hear:
        if self._kindred or pace < 1.0 or one_in(self.chance, 4):
            return Hear(f"quiet {self._label()}", timeout=0.5 * self.taste.scale * pace)
        return Hear(f"letter {self._label()}", 1 + self.chance.draw(3))

    def _fall(self, depth: int, pace: float) -> Node:
        return Fall(self._label()) if one_in(self.chance, 4) else self._do(pace)

    def _way(self, depth: int, pace: float) -> Way:
        name = self._label()
        if one_in(self.chance, 3):
            # What was asked for and not answered is in neither way: no undo of it is owed for ever.
            old = [Do(self._label(), self._seconds(pace)) for _ in range(1 + self.chance.draw(2))]
            return Way(name, Line(old), Do(self._label(), self._seconds(pace)), careless=True)
        return Way(name, self._do(pace), self._do(pace))

    def _chain(self, depth: int, pace: float) -> Chain:
        beside = self._do(pace) if one_in(self.chance, 2) else None
        return self._linked([self._do(pace) for _ in range(2 + self.chance.draw(2))], beside)

    def _linked(self, steps: list[Do], beside: Do | None = None) -> Chain:
        after = ["", *(step.label for step in steps)]
        return Chain([replace(step, after=label) for step, label in zip(steps, after, strict=False)], beside)

    def _fork(self, depth: int, pace: float) -> Fork:
        parts = [self._line(depth - 1, pace) for _ in range(2 + self.chance.draw(2))]
        return Fork(parts, group=self.chance.draw(2) == 1)

    def _within(self, depth: int, pace: float) -> Within:
        if self.chance.draw(2):
            return Within(Rest(10.0 * self.taste.scale), 0.2 * self.taste.scale, late=True)
        return Within(self._line(depth - 1, QUICK), ENOUGH, late=False)

    def _kin(self, depth: int, pace: float) -> Kin:
        awaited = pace < 1.0 or not self._has("abandon") or not one_in(self.chance, 3)
        self._kindred += 1
        part = self._line(depth - 1, pace)
        self._kindred -= 1
        abandon = not awaited and self.chance.draw(2) == 1
        terminate = not awaited and not abandon and self._labels % 2 == 1  # to draw it would make all that follows new
        return Kin(part, abandon, awaited, terminate)

    def _attempted(self, depth: int, pace: float) -> Attempted:
        return Attempted(self._line(depth - 1, pace))

    def _scope(self, depth: int, pace: float) -> Node:
        sequential = self.chance.draw(2) == 1
        if self._has("undo") and self._has("fork") and one_in(self.chance, 2):  # it is left while a step is under way
            seconds, stubborn = 3.0 * self.taste.scale * pace, self._has("stubborn")
            slow: Node = Do(self._label(), seconds, undo=True, stubborn=stubborn)
            if self._has("promise") and one_in(self.chance, 2):  # ... and another one waits for its result
                slow = self._linked([slow, self._do(pace)])
            parts: list[Node] = [slow, Line([self._do(pace), Fall(self._label())])]
            return Attempted(Scope(Fork(parts, group=self.chance.draw(2) == 1), sequential))
        return Scope(self._line(depth - 1, pace), sequential)

    def _guard(self, depth: int, pace: float) -> Guard:
        return Guard(self._line(depth - 1, pace), Do(self._label(), self._seconds(pace)))

    def _told(self, depth: int, pace: float) -> Node:
        """A child tells its parent something, and the parent hears it."""
        name = f"told {self._label()}"
        after = [self._do(pace)] if one_in(self.chance, 2) else []
        return Attempted(Line([Kin(Line([self._do(pace), Say(name), *after])), Hear(name)]))


def nodes(node: Node, *, children: bool = True) -> Iterator[Node]:
    """The node and all below it, in the order in which they are written; without ``children`` only its own process."""
    yield node
    for part in inside(node):
        if children or not isinstance(node, Kin):
            yield from nodes(part, children=children)


def inside(node: Node) -> list[Node]:
    """The nodes directly below one."""
    match node:
        case Line(parts) | Fork(parts):
            return parts
        case Chain(steps, beside):
            return [*steps, *([beside] if beside else [])]
        case Within(part) | Kin(part) | Attempted(part) | Scope(part):
            return [part]
        case Guard(part, cleanup):
            return [part, cleanup]
        case Way(old=old, new=new):
            return [old, new]
    return []
