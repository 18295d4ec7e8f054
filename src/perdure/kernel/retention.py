"""Retention: rules by which processes that have ended are removed, by kind, status and age, and how far each has come.

The first rule that fits a process decides about it. How far the rules have come stands in a note, which also tells
workers without rules that they are to remove nothing by age alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from hashlib import blake2b
from math import isfinite
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from perdure import limits
from perdure.clock import Duration, in_seconds, microseconds, seconds_of
from perdure.errors import DefinitionError
from perdure.kernel.names import check_name, is_made_of
from perdure.kernel.note import RULES_COUNT
from perdure.kernel.plain import shown
from perdure.kernel.process import FINAL, Process, Status

FOR_EVER = "never"
"""What a file or the environment says for None, the age at which nothing is removed."""

RowPlace = tuple[int, bytes]
"""The last row that was looked at: the time of its end, and its id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRule:
    """For how long processes of a kind are kept after their end, and where they are archived before they are removed.

    ``kind`` is a kind, in which ``*`` stands for any text: ``"order"``, ``"order-*"``, ``"*"`` for all; a queue is
    named ``"@bank"``. ``status`` is completed, failed or cancelled, or several of them; without it, all three.
    ``after`` is the age since the end: seconds, a timedelta, or a text as ``"30d"``, ``"12h"``; None or "never" keeps
    for ever. ``archive`` is a folder: each process is written there as a line of JSON before it is removed, in files
    that are compressed with gzip unless ``compress`` is False. Raises DefinitionError.
    """

    kind: str = "*"
    status: Status | str | Collection[Status | str] | None = None
    after: Duration | str | None
    archive: str | Path | None = None
    compress: bool = True
    statuses: frozenset[Status] = field(init=False, repr=False)
    seconds: float | None = field(init=False, repr=False)
    folder: str | None = field(init=False, repr=False)
    _parts: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        kind = check_name(self.kind, "the kind of a retention rule")
        archive = self.archive
        if archive is not None and (not isinstance(archive, str | Path) or not str(archive)):
            raise DefinitionError(f"RetentionRule(archive={shown(archive)}) is no folder. Give its path.")
        if not isinstance(self.compress, bool):
            raise DefinitionError(f"RetentionRule(compress={shown(self.compress)}): give True or False.")
        for name, value in (
            ("statuses", _statuses(self.status)),
            ("seconds", _age(self.after)),
            ("folder", None if archive is None else str(archive)),
            ("_parts", tuple(kind.split("*"))),
        ):
            object.__setattr__(self, name, value)

    def fits(self, process: Process) -> bool:
        """Whether the process has ended, and is of such a kind and status."""
        return process.status in self.statuses and is_made_of(process.kind, self._parts)

    @property
    def text(self) -> str:
        """The rule in one line: equal for equal rules."""
        states = "" if self.statuses == FINAL else f" {','.join(sorted(self.statuses))}"
        age = FOR_EVER if self.seconds is None else f"{self.seconds:g}s"
        where = "" if self.folder is None else f" to {self.folder}{'' if self.compress else ' (plain)'}"
        return f"{self.kind}{states} after {age}{where}"

    def due_to(self, now: int) -> int | None:
        """The latest end of a process that may be removed now; None if none may ever.

        Not in the first minute: a commit under way may still show an end that is some seconds old.
        """
        if self.seconds is None:
            return None
        return now - microseconds(max(self.seconds, limits.RETENTION_SETTLED_SECONDS))


SETTINGS = tuple(one.name for one in fields(RetentionRule) if one.init)


def _statuses(given: Any) -> frozenset[Status]:
    if given is None:
        return FINAL
    several = [given] if isinstance(given, str) else given
    try:
        found = frozenset(map(Status, several))
    except (ValueError, TypeError):
        found = frozenset()
    if not found or not found <= FINAL:
        raise DefinitionError(
            f"RetentionRule(status={shown(given)}) names no status in which a process has ended. "
            "Give completed, failed or cancelled, several in a list, or leave it out."
        )
    return found


def _age(given: Any) -> float | None:
    if given is None or given == FOR_EVER:
        return None
    seconds: Any = seconds_of(given) if isinstance(given, str) else in_seconds(given)
    known = isinstance(seconds, int | float) and not isinstance(seconds, bool) and isfinite(seconds)
    if not known or not 0 <= seconds <= limits.FARTHEST_SECONDS:
        raise DefinitionError(
            f"RetentionRule(after={shown(given)}) is no age. Give seconds, a timedelta, or a text as "
            f'"90s", "15m", "12h" or "30d"; None, in a file "{FOR_EVER}", keeps for ever.'
        )
    return float(seconds)


def rules_of(source: str, given: Any) -> tuple[RetentionRule, ...]:
    """The rules that a program, a file or the environment gives, in their order; raises DefinitionError."""
    if isinstance(given, str | Mapping) or not isinstance(given, Collection):
        raise DefinitionError(f"the retention of {source} is no list of rules. {_EXAMPLE}")
    if len(given) > limits.RETENTION_RULE_RECORDS:
        raise DefinitionError(
            f"{source} has {len(given):,} retention rules; there may be {limits.RETENTION_RULE_RECORDS}. "
            "Give kinds that are kept alike names that begin alike, and one rule for all of them."
        )
    return tuple(_rule(source, one) for one in given)


_EXAMPLE = 'Write [{"kind": "order-*", "status": "completed", "after": "30d", "archive": "archive"}].'


def _rule(source: str, given: Any) -> RetentionRule:
    if isinstance(given, RetentionRule):
        return given
    if not isinstance(given, Mapping) or "after" not in given or not given.keys() <= set(SETTINGS):
        told = ", ".join(map(str, given)) if isinstance(given, Mapping) else shown(given)
        raise DefinitionError(
            f"a retention rule of {source} sets {told or 'nothing'}. It sets after, and some of "
            f"{', '.join(name for name in SETTINGS if name != 'after')}. {_EXAMPLE}"
        )
    try:
        return RetentionRule(**given)
    except DefinitionError as error:
        raise DefinitionError(f"a retention rule of {source}: {error}") from None


def deciding(rules: Sequence[RetentionRule], process: Process) -> RetentionRule | None:
    """The rule that decides about a process: the first that fits."""
    return next((rule for rule in rules if rule.fits(process)), None)


def marks(rules: Sequence[RetentionRule]) -> Iterator[str]:
    """What the place of each rule is kept under: what a rule decides follows from it and from those before it."""
    digest = blake2b(digest_size=8)
    for rule in rules:
        digest.update(f"{rule.text}\n".encode())
        yield digest.hexdigest()


class RuleProgress(Struct, frozen=True, omit_defaults=True):
    """How far a rule has come. Times are microseconds, ids hexadecimal.

    ``at`` and ``id`` are of the last row that was looked at, of all that have ended, the longest ended first. A row
    that the rule had to leave is looked at again after a while, from ``left_at`` and ``left_id`` on, the row before it;
    None says that none was left since ``begun_at``, when the rows were last begun with. ``seen_at`` is when a worker
    that has the rule last said so. ``removed``, ``archived`` and ``left`` count: the last one since ``begun_at``.
    """

    rule: str = ""
    seen_at: int = 0
    begun_at: int = 0
    at: int | None = None
    id: str = ""
    left_at: int | None = None
    left_id: str = ""
    removed: int = 0
    archived: int = 0
    left: int = 0

    @property
    def place(self) -> RowPlace | None:
        """Behind which row to go on; None: at the first one."""
        return None if self.at is None else (self.at, bytes.fromhex(self.id))

    def again(self, now: int, seconds: float = limits.RETENTION_AGAIN_SECONDS) -> RuleProgress:
        """The same, or back at the first row that was left, if the rows were begun with so long ago."""
        if self.left_at is None or now - self.begun_at < microseconds(seconds):
            return self
        at = self.left_at if self.left_id else None
        return replace(self, at=at, id=self.left_id, left_at=None, left_id="", left=0, begun_at=now)

    def passed(self, page: Sequence[Process], left: Collection[bytes], removed: int, archived: int) -> RuleProgress:
        """Behind a page of rows, of which some were ``left``, by their ids."""
        after = replace(
            self, at=page[-1].changed_at, id=page[-1].id.hex(), removed=self.removed + removed,
            archived=self.archived + archived, left=self.left + len(left),
        )  # fmt: skip
        if not left or self.left_at is not None:
            return after
        first = next(number for number, row in enumerate(page) if row.id in left)
        if first:
            return replace(after, left_at=page[first - 1].changed_at, left_id=page[first - 1].id.hex())
        return replace(after, left_at=self.at or 0, left_id=self.id)


class RetentionState(Struct, frozen=True, omit_defaults=True):
    """The content of the note: how far each rule has come, by its mark.

    Until ``until`` the worker ``holder`` is at work by rules, so that no other one archives the same processes.
    """

    holder: str = ""
    until: int = 0
    rules: dict[str, RuleProgress] = {}

    def of(self, mark: str, rule: RetentionRule) -> RuleProgress:
        """How far a rule has come."""
        return self.rules.get(mark) or RuleProgress(rule.text)

    def with_rule(self, mark: str, changed: RuleProgress, now: int, ours: Collection[str]) -> RetentionState:
        """With this rule as it is now, and without those that no worker has had for a day.

        ``ours`` are the marks of the rules that the caller has: those it has not looked at yet stay, too.
        """
        every = {**self.rules, mark: changed}
        rules = {mark: one for mark, one in every.items() if mark in ours or now - one.seen_at < RULES_COUNT}
        return replace(self, rules=rules)
