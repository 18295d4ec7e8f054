"""The tenancy, as whoever runs it sees it."""

from __future__ import annotations

from tests.examples.conftest import Example


def test_tenants_pay_by_the_code_that_fits_them(example: Example) -> None:
    printed = example("tenancy")
    lines = [" ".join(line.split()) for line in printed]
    assert [line for line in lines if line.startswith("Ann pays")] == [
        "Ann pays 700, run 1, collect:1",
        "Ann pays 60, run 2, collect:1",
        "Ann pays 700, run 2, collect:2",
        "Ann pays 60, run 3, collect:1",
        "Ann pays 700, run 3, collect:2",
    ]
    assert "Ben pays 2250, run 1, collect:1" in lines
    assert lines[-2:] == ["Ann moves out", "2250 from Ben, who moves out"]
