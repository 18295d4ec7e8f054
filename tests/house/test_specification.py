"""SPECIFICATION names tests that are there for each row; source and tests cite rules and laws, and no foreign codes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.house.page import DOCS, file_named, spans
from tests.house.tree import ROOT, every_test, tracked

ROWS = {"": 123, "SAS-": 41, "IPF-": 28, "S": 20, "L": 5, "X": 8, "R": 30}
"""How many rows of each kind the specification has; those of faults and of the FailMap both begin with an F."""

ELSEWHERE = ("tests/upgrade/released/", "docs/SPECIFICATION.md", "CHANGELOG.md", "tests/house/test_specification.py")
IN_NAMES = re.compile(r"\btest_(?:[efrlx]|s(?!3_)|ipf|sas|row|fix|bk)_?\d+_|\btest_\w+_(?:[efrlx]|ipf|sas|row_)\d+\b")
IN_TEXTS = re.compile(
    r"(?<![\w\"'#/{=<-])(?:(?:SAS|IPF|BK|FIX)-?\d+|[EFRLX]\d{1,3}|S(?!3\b)\d{1,2}|(?:DESIGN|PROTOCOL) \w*\d)\b"
)
ALLOWED = re.compile(r"# noqa:.*")
"""What the linter's codes stand behind."""


def page() -> str:
    return (DOCS / "SPECIFICATION.md").read_text(encoding="utf-8")


def lines(text: str) -> list[list[str]]:
    """The rows of the page, of all its tables."""
    found = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [cells for cells in found if cells[0] != "row"]


def wrong(text: str) -> Iterator[str]:
    """Rows that name a test which is not there, or that are proven by nothing and do not say so."""
    for cells in lines(text):
        named = spans(cells[-1])
        if len(cells) != 3 or bool(named) == (cells[-1] == "not yet"):
            yield f"row {cells[0]} is not told of"
        for test in named:
            if test not in every_test() and ("/" not in test or file_named(test) is None):
                yield f"row {cells[0]}: there is no {test}"


def foreign(name: str, text: str) -> Iterator[str]:
    """Codes of the specification in a file."""
    for found in [*IN_NAMES.finditer(text), *IN_TEXTS.finditer(ALLOWED.sub("", text))]:
        yield f"{name}:{text.count(chr(10), 0, found.start()) + 1} says {found[0]}"


def test_every_row_of_the_specification_has_tests_that_are_there_or_is_not_yet() -> None:
    assert list(wrong(page())) == []


def test_no_row_of_the_specification_is_missing() -> None:
    ids = [cells[0] for cells in lines(page())]
    for kind, count in ROWS.items():
        assert [one for one in ids if re.fullmatch(rf"{kind}\d+", one)] == [f"{kind}{n}" for n in range(1, count + 1)]
    faults = [one for one in ids if one.startswith("F") and not one.startswith("FIX")]
    assert faults == [f"F{n}" for n in range(1, 29)] + [f"F{n:02}" for n in range(1, 71)]
    assert len(ids) == len(faults) + sum(ROWS.values()) + 2


def test_source_and_tests_cite_no_codes_that_this_repository_does_not_explain() -> None:
    found = []
    for path in tracked():
        name = path.relative_to(ROOT).as_posix()
        if path.suffix in {".py", ".sql", ".txt", ".md"} and not name.startswith(ELSEWHERE):
            found += foreign(name, f"{path.stem}\n{path.read_text(encoding='utf-8')}")
    assert found == []


def test_a_wrong_row_and_a_foreign_code_are_found() -> None:
    for right, bad in (("`test_two_schemas_in_one", "`test_three_schemas_in_one"), ("| not yet |", "|  |")):
        assert right in page()
        assert list(wrong(page().replace(right, bad, 1))), bad
    for code in (
        "def test_f33_a_b(",
        "def test_row_104_x(",
        "test_it_ends_well_f16()",
        "(R4)",
        "see SAS-18",
        "DESIGN 4",
    ):
        assert list(foreign("planted.py", code)), code
    for word in ("def test_rule_13_it(", "an S3 bucket", "x = 1  # noqa: S608", "key F-1", "test_s3_like_stores()"):
        assert not list(foreign("planted.py", word)), word
