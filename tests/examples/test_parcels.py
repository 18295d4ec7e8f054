"""The parcel service: what people order is done, and done once."""

from __future__ import annotations

from tests.examples.conftest import Example


def test_people_answer_for_a_machine_hold_a_parcel_and_send_one_again(example: Example, store_url: str) -> None:
    printed = example("parcels", store_url)
    assert printed == [
        "books: StepError, for the scale does not answer",
        "books: books was driven, tour 1: 3.0 kg, label of books",
        "cake: it is held: by customs because: what is in it?; `perdure resume` lets it go on; "
        "`perdure terminate` ends it",
        "cake: cake was driven, tour 2: 2.5 kg, label of cake",
        "cake: cake was driven, tour 3: 2.5 kg, label of cake",
        "cake: its first run can still be read, it ended as completed",
    ]
