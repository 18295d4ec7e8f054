"""The grammar of queries: ``status = failed and (error = CardRefused or age > 2d)``, read into a tree.

::

    query      = every { "or" every }
    every      = one { "and" one }
    one        = "not" one | "(" query ")" | "@" name
               | field [ operator value | ["not"] "in" "(" value { "," value } ")" ]
    operator   = "=" | "!=" | "<" | "<=" | ">" | ">=" | "~"

A value stands in quotes, or without them if it has no spaces and none of ``( ) , = < > ! ~``. In a text that is
compared with ``=``, ``!=`` or ``in`` a ``*`` stands for any letters; ``~`` asks whether a text contains another,
whatever its case. A field alone asks whether the process has it. ``@name`` is a saved search, which
`saved.py` puts in its place before the query is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TypeAlias, TypeVar

from msgspec import Struct

from perdure.client.finding.fields import FIELDS, OPERATORS, Candidate, Field, Test, field_of
from perdure.errors import InvalidInput

T = TypeVar("T")
_TOKEN = re.compile(
    r"""\s*(?: (?P<quoted>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*') | (?P<mark><=|>=|!=|==|[=<>~(),])
    | (?P<bare>[^\s"'(),=<>!~]+) )""",
    re.VERBOSE,
)
_KEYWORDS = frozenset({"and", "or", "not", "in"})
DEPTH = 50


class Has(Struct, frozen=True):
    """The process has this field."""

    field: Field

    def fits(self, one: Candidate) -> bool:
        """Whether the query fits the process."""
        return self.field.read(one) not in (None, "", 0, False)


class Compared(Struct, frozen=True):
    """The field compares so to one of the values; ``test`` asks whether it does."""

    field: Field
    operator: str
    values: tuple[str, ...]
    test: Test

    def fits(self, one: Candidate) -> bool:
        """Whether the query fits the process: never, for a comparison with what the process does not have."""
        value = self.field.read(one)
        return value is not None and self.test(value)


class Every(Struct, frozen=True):
    """All of these fit."""

    parts: tuple[Query, ...]

    def fits(self, one: Candidate) -> bool:
        """Whether the query fits the process."""
        return all(part.fits(one) for part in self.parts)


class Either(Struct, frozen=True):
    """At least one of these fits."""

    parts: tuple[Query, ...]

    def fits(self, one: Candidate) -> bool:
        """Whether the query fits the process."""
        return any(part.fits(one) for part in self.parts)


class Not(Struct, frozen=True):
    """That does not fit."""

    part: Query

    def fits(self, one: Candidate) -> bool:
        """Whether the query fits the process."""
        return not self.part.fits(one)


Query: TypeAlias = Has | Compared | Every | Either | Not
EVERYTHING = Every(())


def parsed(text: str) -> Query:
    """The tree of a query; an empty text fits every process. Raises InvalidInput, which says where and what to do."""
    if not isinstance(text, str):
        raise InvalidInput(f"a query is a text, not a value of type {type(text).__name__}: \"status = 'failed'\"")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"the query cannot be written in UTF-8: {error}. Give a text without half characters."
        ) from None
    return _Reader(text).whole() if text.strip() else EVERYTHING


def references(text: str) -> list[tuple[int, int, str]]:
    """Where a query names saved searches: begin, end and name of each, in their order. Raises InvalidInput."""
    return _Reader(text).references() if isinstance(text, str) and "@" in text else []


class _Token(Struct, frozen=True):
    text: str
    at: int
    quoted: bool = False

    def says(self, *words: str) -> bool:
        return not self.quoted and self.text.lower() in words


class _Reader:
    """Reads a query from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._tokens = list(self._cut())
        self._next = 0
        self._deep = 0

    def _cut(self) -> Iterator[_Token]:
        at, end = 0, len(self.text.rstrip())
        while at < end:
            found = _TOKEN.match(self.text, at)
            if found is None:
                raise self._wrong("a quotation mark lacks its second one.", at)
            quoted = found["quoted"]
            text = found["mark"] or found["bare"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted[1:-1])
            yield _Token(text, found.start() + len(found[0]) - len(found[0].lstrip()), quoted is not None)
            at = found.end()

    def _wrong(self, what: str, at: int) -> InvalidInput:
        where = f"at character {at + 1}, {self.text[at:][:20]!r}" if at < len(self.text) else "at its end"
        return InvalidInput(f"the query cannot be read {where}: {what}")

    def _peek(self) -> _Token:
        end = _Token("", len(self.text))
        return self._tokens[self._next] if self._next < len(self._tokens) else end

    def _take(self) -> _Token:
        token = self._peek()
        self._next += 1
        return token

    def _taken(self, *words: str) -> bool:
        there = self._peek().says(*words)
        self._next += there
        return there

    def references(self) -> list[tuple[int, int, str]]:
        found = []
        for place, token in enumerate(self._tokens):
            if token.text.startswith("@") and not token.quoted and self._opens(place):
                found.append((token.at, token.at + len(token.text), token.text[1:]))
        return found

    def _opens(self, place: int) -> bool:
        """Whether a field is wanted there: not behind an operator, nor among the values of ``in``."""
        if place == 0 or self._tokens[place - 1].says("and", "or", "not"):
            return True
        return self._tokens[place - 1].says("(") and not (place > 1 and self._tokens[place - 2].says("in"))

    def whole(self) -> Query:
        query = self._either()
        left = self._peek()
        if left.text:
            raise self._wrong("`and` or `or` is wanted here.", left.at)
        return query

    def _either(self) -> Query:
        parts = [self._every()]
        while self._taken("or"):
            parts.append(self._every())
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def _every(self) -> Query:
        ones = [self._one()]
        while self._taken("and"):
            ones.append(self._one())
        # In brackets or not is the same, so that the database narrows by what stands in a saved search.
        parts = [part for one in ones for part in (one.parts if isinstance(one, Every) else (one,))]
        return parts[0] if len(parts) == 1 else Every(tuple(parts))

    def _one(self) -> Query:
        self._deep += 1
        if self._deep > DEPTH:
            raise self._wrong(f"it is nested more than {DEPTH} deep.", self._peek().at)
        try:
            if self._taken("not"):
                return Not(self._one())
            if self._taken("("):
                inner = self._either()
                self._close()
                return inner
            return self._compared()
        finally:
            self._deep -= 1

    def _close(self) -> None:
        token = self._take()
        if not token.says(")"):
            raise self._wrong("a closing `)` is wanted here.", token.at)

    def _compared(self) -> Query:
        name = self._take()
        if name.quoted or not name.text or name.text in OPERATORS or name.says("(", ")", ",", *_KEYWORDS):
            raise self._wrong(f"a field is wanted here: one of {', '.join(FIELDS)}, or attributes.NAME.", name.at)
        field = self._checked(lambda: field_of(name.text), name.at)
        if self._peek().text in OPERATORS and not self._peek().quoted:
            token = self._take()
            return self._comparison(field, "=" if token.text == "==" else token.text, [self._value()])
        if self._peek().says("in"):
            self._take()
            return self._comparison(field, "=", self._values())
        if self._peek().says("not") and self._next + 1 < len(self._tokens) and self._tokens[self._next + 1].says("in"):
            self._next += 2
            return Not(self._comparison(field, "=", self._values()))
        return Has(field)

    def _values(self) -> list[_Token]:
        opening = self._take()
        if not opening.says("("):
            raise self._wrong("`in` wants values in brackets: status in (failed, broken).", opening.at)
        values = [self._value()]
        while self._taken(","):
            values.append(self._value())
        self._close()
        return values

    def _value(self) -> _Token:
        token = self._take()
        if not token.quoted and (token.text in ("", "(", ")", ",") or token.text in OPERATORS):
            raise self._wrong("a value is wanted here.", token.at)
        return token

    def _comparison(self, field: Field, operator: str, values: list[_Token]) -> Compared:
        tests = [self._checked(lambda one=one: field.test(operator, one.text), one.at) for one in values]  # type: ignore[misc]
        test = tests[0] if len(tests) == 1 else lambda value: any(test(value) for test in tests)
        return Compared(field, operator, tuple(one.text for one in values), test)

    def _checked(self, made: Callable[[], T], at: int) -> T:
        try:
            return made()
        except InvalidInput as why:
            raise self._wrong(str(why), at) from None
