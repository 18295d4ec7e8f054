"""The clinic, as whoever runs it sees it."""

from __future__ import annotations

from tests.examples.conftest import Example


def test_the_clinic_s_patients_are_read_only_by_who_has_a_key(example: Example) -> None:
    printed = example("clinic")
    assert [" ".join(line.split()) for line in printed] == [
        "who has the key reads {'patient': 'Ann Smith', 'waits for': 'the doctor'}",
        "who has not finds a name nowhere; 1 picture lies outside",
        "started again as the same one",
        "under the new key Ann Smith is fit as a fiddle, says Dr. Jones",
    ]
