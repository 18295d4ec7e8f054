"""The guide leads from page to page, every link of every page leads somewhere, and the site has all of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import perdure
from docs import fences
from perdure.cli.app import whole_app
from tests.house.page import DOCS, links, pages, rows, spans
from tests.house.tree import ROOT

GUIDE = DOCS / "guide"
HEADING = re.compile(r"^#+ (.+?)\s*$", re.MULTILINE)
FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def anchors(text: str) -> set[str]:
    """What the headings of a page can be named by in a link."""
    headings = HEADING.findall(FENCE.sub("", text))
    return {_slug(re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)) for heading in headings}


def _slug(heading: str) -> str:
    return re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


def dead(page: Path, text: str) -> Iterator[str]:
    """Links of a page to files that are not there, or to headings that their page does not have."""
    for target in links(text):
        if "://" in target or target.startswith("mailto:"):
            continue
        place, _, anchor = target.partition("#")
        file = page.parent / place if place else page
        if not file.exists():
            yield f"{page.name} links to {target}"
        elif anchor and anchor not in anchors(text if file == page else file.read_text(encoding="utf-8")):
            yield f"{page.name} links to {target}, where no heading is called so"


def test_no_link_of_any_page_is_dead() -> None:
    assert [found for page in pages() for found in dead(page, page.read_text(encoding="utf-8"))] == []


def test_a_dead_link_is_found_wherever_it_leads() -> None:
    page = GUIDE / "02-steps.md"
    for wrong in ("[a](absent.md)", "[a](16-operating.md#absent)", "[a](#absent)", "[a](absent.md#workers)"):
        assert list(dead(page, f"# Steps\n\n{wrong}\n")), wrong
    assert not list(dead(page, "# Steps\n\n## What for?\n\n[a](#what-for) [b](16-operating.md#workers)\n"))


def test_the_guide_lists_its_pages_in_their_order() -> None:
    listed = re.findall(r"^\d+\. \[[^]]+\]\((\S+)\)", (GUIDE / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert listed == sorted(page.name for page in GUIDE.glob("[0-9]*.md"))
    assert [name[:2] for name in listed] == [f"{number:02}" for number in range(1, len(listed) + 1)]


def test_who_comes_because_something_is_wrong_finds_at_once_where_to_begin() -> None:
    told = rows((GUIDE / "README.md").read_text(encoding="utf-8"), "what is wrong")
    assert len(told) <= 10 and all(spans(begin) and list(links(do)) for _, begin, do in told)
    led_to = {target.partition("#")[0][:2] for *_, do in told for target in links(do)}
    assert {"16", "17", "18", "29", "30", "31", "32", "33", "34"} <= led_to
    here = "guide/README.md#when-something-is-wrong"
    for page in (ROOT / "README.md", DOCS / "index.md"):
        assert any(target.endswith(here) for target in links(page.read_text(encoding="utf-8"))), page
    assert {"`perdure health`", "`perdure explain"} <= set(re.findall(r"`perdure \w+`?", str(whole_app().help)))


def test_each_page_of_the_guide_leads_to_the_next_one() -> None:
    every = sorted(GUIDE.glob("[0-9]*.md"))
    for page, following in zip(every, [*every[1:], GUIDE / "README.md"], strict=True):
        last = page.read_text(encoding="utf-8").rstrip().splitlines()[-1]
        assert last.startswith("Next: ") and f"]({following.name})" in last, page.name


def test_the_site_has_the_pages_of_the_guide_in_their_order() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    told = re.findall(r"- (\S+\.md)$", navigation, re.MULTILINE)
    assert [name for name in told if not (DOCS / name).exists()] == []
    assert [name for name in told if re.match(r"guide/\d", name)] == [
        f"guide/{page.name}" for page in sorted(GUIDE.glob("[0-9]*.md"))
    ]


def test_every_block_of_code_is_one_on_the_site_too() -> None:
    hooks = re.search(r"^hooks: \[(\S+)\]$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert hooks is not None and ROOT / hooks[1] == Path(fences.__file__)
    every = [path.read_text(encoding="utf-8") for path in pages()]
    assert any("\n```console terminal=2\n" in text for text in every)
    shown = [fences.on_page_markdown(text) for text in every]
    assert [line for text in shown for line in re.findall(r"^```.*$", text, re.MULTILINE) if " " in line] == []


def test_the_reference_leads_to_each_of_its_pages_and_the_site_has_them() -> None:
    every = sorted(page.name for page in (DOCS / "reference").glob("*.md") if page.name != "index.md")
    index = links((DOCS / "reference" / "index.md").read_text(encoding="utf-8"))
    assert sorted(name for name in index if "/" not in name) == every
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    assert sorted(re.findall(r"- reference/(\S+\.md)$", navigation, re.MULTILINE)) == sorted([*every, "index.md"])


def test_the_reference_has_every_public_name_once() -> None:
    reference = [page.read_text(encoding="utf-8") for page in (DOCS / "reference").glob("*.md")]
    told = re.findall(r"^::: perdure\.(\w+)$", "\n".join(reference), re.MULTILINE)
    assert "errors" in told
    assert sorted([*told, *(set(perdure.errors.__all__) & set(perdure.__all__))]) == sorted(
        [*perdure.__all__, "errors"]
    )
