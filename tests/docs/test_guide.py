"""The guide is followed page by page, as a reader would."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.walkthrough import Walkthrough
from tests.source import ROOT

PAGES = sorted((ROOT / "docs" / "guide").glob("*.md"))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_whoever_follows_the_page_sees_what_it_promises(page: Path, tmp_path: Path) -> None:
    Walkthrough(page, tmp_path).follow()
