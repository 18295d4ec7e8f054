"""The rules are in the repository: each rule that is cited stands in PROTOCOL, with tests that prove it and exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from tests.house.page import DOCS, file_named, pages, rows, spans
from tests.house.tree import ROOT, every_test, tracked

CITED = re.compile(r"\brules?:? (\d+(?:(?:,| to| and|, and) \d+)*)\b", re.IGNORECASE)
NAMED = re.compile(r"(?<![a-z])rule_(\d+)")
ELSEWHERE = "tests/upgrade/released/"
"""The source of a release that was, as it was."""


def page() -> str:
    return (DOCS / "PROTOCOL.md").read_text(encoding="utf-8")


def rules(text: str) -> dict[int, str]:
    """The rules of the page: their numbers, and what is said of each."""
    parts = re.split(r"^##+ (?:(\d+)\. )?", text, flags=re.MULTILINE)
    return {int(number): told for number, told in zip(parts[1::2], parts[2::2], strict=True) if number}


def numbers(text: str) -> set[int]:
    """The numbers of the rules that a text cites: rule 5, rules 8 to 11, rules 2, 4 and 15, `test_rule_05_...`."""
    found = {int(number) for number in NAMED.findall(text)}
    for cited in CITED.findall(text):
        for first, last in re.findall(r"(\d+)(?: to (\d+))?", cited):
            found |= set(range(int(first), int(last or first) + 1))
    return found


@cache
def cited() -> dict[str, set[int]]:
    """The files of the project with the rules that each cites."""
    files = {path.relative_to(ROOT).as_posix(): path for path in tracked()}
    return {
        name: numbers(f"{name}\n{path.read_text(encoding='utf-8')}")
        for name, path in files.items()
        if path.suffix in {".py", ".sql", ".txt", ".md"} and not name.startswith((ELSEWHERE, "CHANGELOG"))
    }


def unknown(known: set[int]) -> Iterator[str]:
    """Files of the project that cite a rule which is not on the page."""
    for name, found in cited().items():
        yield from (f"{name} cites rule {number}" for number in sorted(found - known))


def unproven(text: str) -> Iterator[str]:
    """Rules without a test, or with one that does not exist."""
    named = {f"rule {number}": told.partition("Proven by ")[2] for number, told in rules(text).items()}
    named |= {row[0]: row[2] for row in rows(text, "name")}
    for rule, proofs in named.items():
        proven = spans(proofs)
        if not proven:
            yield f"{rule} is proven by nothing"
        for test in proven:
            if test not in every_test() and ("/" not in test or file_named(test) is None):
                yield f"{rule}: there is no {test}"


def test_the_page_has_every_rule_in_its_order() -> None:
    assert list(rules(page())) == list(range(1, 26))


def test_every_rule_that_is_cited_stands_on_the_page() -> None:
    assert list(unknown(set(rules(page())))) == []


def test_every_rule_is_proven_by_tests_that_are_there() -> None:
    assert list(unproven(page())) == []


def test_every_rule_has_a_test_that_bears_its_number() -> None:
    borne = {int(number) for name in every_test() for number in NAMED.findall(name)}
    assert borne == set(rules(page()))


def test_every_rule_that_a_broken_engine_lacks_is_on_the_page_or_is_no_number() -> None:
    lines = [path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "simulator" / "broken").glob("*.txt")]
    lacking = set(re.findall(r"^rule: (.+)$", "\n".join(lines), re.MULTILINE))
    assert len(lacking) > 20
    assert {int(rule) for rule in lacking if rule.isdigit()} <= set(rules(page()))
    assert {row[0].strip("`") for row in rows(page(), "name")} <= lacking


def test_no_page_names_a_test_that_is_not_there() -> None:
    stems = {path.stem for path in tracked() if path.suffix == ".py"}
    for path in pages():
        if path.name == "CHANGELOG.md":
            continue
        told = {
            name
            for span in spans(path.read_text(encoding="utf-8"))
            for name in re.findall(r"\btest_\w+\b(?![*_])", span)
        }
        assert told - every_test() - stems == set(), path.name


def test_a_wrong_citation_and_a_wrong_proof_are_found() -> None:
    assert numbers("rules 8 to 11; rule 5. Rules 2, 4 and 15, test_rule_03_it") == {2, 3, 4, 5, 8, 9, 10, 11, 15}
    assert list(unknown(set(range(1, 25))))
    text = page()
    for right, wrong in (
        ("`test_a_claim_never_takes_more_than_its_limit`", "`test_a_claim_takes_what_it_likes`"),
        ("Proven by `test_rule_17_", "See `test_rule_17_"),
        ("`tests/sweeps`", "`tests/brooms`"),
    ):
        assert right in text
        assert list(unproven(text.replace(right, wrong))), wrong
