"""The diagram of a flow in the guide is the one that its code draws."""

from __future__ import annotations

import runpy
from pathlib import Path

from tests.docs.walkthrough import blocks
from tests.source import ROOT


def test_the_diagram_of_the_guide_is_drawn_by_the_flow_beside_it(tmp_path: Path) -> None:
    code, shown, *_ = blocks(ROOT / "docs" / "guide" / "24-flows.md")
    assert (code.language, shown.language) == ("python", "mermaid")
    file = tmp_path / "claims.py"
    file.write_text(code.text, encoding="utf-8")
    assert runpy.run_path(str(file), run_name="claims")["Claim"].diagram() == shown.text
