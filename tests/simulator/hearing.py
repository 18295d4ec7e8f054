"""Hearing: what the store has told each OS process, and what must not begin there after that (rules 17 and 18)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.kernel.claim import Claimed
from perdure.kernel.commit import Commit, CommitAnswer, Start, StartAnswer, StartVerdict, Verdict
from perdure.kernel.message import DELIVERED, LETTERS, Message, SendAnswer
from perdure.kernel.names import id_bytes, id_text
from perdure.testing.simulator import Cluster, Violation
from perdure.testing.simulator.life import Life
from tests.simulator.ledger import Effect

Place = tuple[Life, bytes]
"""A process in the hands of an OS process."""


class Hearing:
    """Ends a history in which a step begins where a commit was refused, or before a message that was told of is read.

    ``refused`` says whose turns were refused and not claimed anew since, ``tokens`` that of the last claim; ``heard``
    which messages were read, ``unheard`` up to which number there are others, as the answer to a commit has said.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.refused: set[Place] = set()
        self.tokens: dict[Place, int] = {}
        self.heard: dict[Place, int] = {}
        self.unheard: dict[Place, int] = {}
        cluster.server.told = self._told

    def _told(self, life: Life, door: str, asked: tuple[Any, ...], answer: Any) -> None:
        if door == "start":
            self._started(life, asked[0], answer)
        elif door == "claim":
            self._claimed(life, answer.claimed)
        elif door == "messages":
            self._read(life, answer)
        elif door == "send":
            self._sent(life, asked[0], answer)
        elif door == "commit":
            self._committed(life, asked[0], answer)

    def _started(self, life: Life, starts: Sequence[Start], answers: Sequence[StartAnswer]) -> None:
        for start, answer in zip(starts, answers, strict=True):
            if answer.verdict is StartVerdict.CREATED:
                self._hears(life, start.process.id, len(start.messages))

    def _claimed(self, life: Life, claimed: Sequence[Claimed]) -> None:
        for one in claimed:
            self.refused.discard((life, one.process.id))
            self.unheard.pop((life, one.process.id), None)
            self.heard.pop((life, one.process.id), None)
            self.tokens[life, one.process.id] = one.process.token
            self._hears(life, one.process.id, max([one.process.seen, *(message.number for message in one.messages)]))

    def _read(self, life: Life, messages: Sequence[Message]) -> None:
        for message in messages:
            self._hears(life, message.process, message.number)

    def _sent(self, life: Life, messages: Sequence[Message], answers: Sequence[SendAnswer]) -> None:
        """What a worker sends to a process of its own it knows, unless others have sent something before it."""
        for message, answer in zip(messages, answers, strict=True):
            place = life, answer.process
            known = message.type in LETTERS and answer.owner is not None and answer.verdict is DELIVERED
            if known and self.heard.get(place, -1) == answer.number - 1 and place not in self.unheard:
                self._hears(life, answer.process, answer.number)

    def _hears(self, life: Life, process: bytes, number: int) -> None:
        place = life, process
        self.heard[place] = max(number, self.heard.get(place, 0))
        if self.unheard.get(place, 0) <= self.heard[place]:
            self.unheard.pop(place, None)

    def _committed(self, life: Life, commits: Sequence[Commit], answers: Sequence[CommitAnswer]) -> None:
        for commit, answer in zip(commits, answers, strict=True):
            place = life, commit.after.id
            if commit.after.owner is None or commit.after.token < self.tokens.get(place, 0):
                continue  # a command, or an end; or what was begun before the last claim
            if answer.verdict is Verdict.REFUSED:
                self.refused.add(place)
                continue
            if answer.verdict is Verdict.APPLIED:
                self._hears(life, commit.after.id, commit.after.seen)  # a letter that it brought among them
            if answer.inbox > max(commit.after.seen, self.heard.get(place, 0)):
                self.unheard[place] = answer.inbox

    def saw(self, effect: Effect) -> None:
        """A step begins, if its policy allows it."""
        if effect.kind == "surplus":
            self._fail(
                "attempts_end", f"{effect.label} is tried for the {effect.attempt}. time, and has no attempt left"
            )
        if effect.kind not in ("began", "undoing"):
            return
        process = id_bytes(effect.process)
        place = self.cluster.loop.current(), process
        if place in self.refused:
            self._fail("refused_is_void", f"{effect.label} begins where a commit of its process was refused")
        waits = effect.kind != "began" or self.cluster.swarm.refusals  # it was released before, and had to wait
        if place in self.unheard and not waits:
            text = f"message {self.unheard[place]} of {id_text(process)} was told of, and not read"
            self._fail("heard_before_released", f"{effect.label} begins, and {text}")

    def _fail(self, law: str, text: str) -> None:
        self.cluster.loop.fail(Violation(law, text))
