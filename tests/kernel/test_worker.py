"""What a worker offers: workers of older and newer versions read one another's rows, and shared names are found."""

from __future__ import annotations

import pytest
from msgspec import json

from perdure.kernel.worker import Offer, Pair, WorkerRow, hosted_by, mistakable, namesakes

ORDER = ("order", "1")


def row(offer: Offer | bytes) -> WorkerRow:
    return WorkerRow(b"w" * 16, "w", offer if isinstance(offer, bytes) else offer.encode())


def from_module(origin: str, pair: Pair = ORDER) -> WorkerRow:
    return row(Offer(frozenset({pair}), {pair: "aa"}, 3, {pair: origin}))


@pytest.mark.parametrize(
    "origin", ["shop.orders:order", "my shop.orders 2:Shop.order", "odd\nfolder:order", "a:b:order"]
)
@pytest.mark.parametrize("pair", [ORDER, ("an order", "a version"), ("order", ""), ("@bank", "till"), ("código", "é")])
def test_an_offer_comes_back_as_it_was_whatever_the_module_is_called(origin: str, pair: Pair) -> None:
    offer = Offer(frozenset({pair, ("pay", "m:pay")}), {pair: "aa"}, 3, {pair: origin})
    assert Offer.decode(offer.encode()) == offer


@pytest.mark.parametrize(
    ("raw", "offer"),
    [
        (b'[["order","1"]]', Offer(frozenset({ORDER}))),
        (
            b'[["order","1"],[" code aa order","1"],[" schema","3"]]',
            Offer(frozenset({ORDER}), {ORDER: "aa"}, 3),
        ),
    ],
)
def test_the_row_of_an_older_worker_is_read_and_says_nothing_of_origins(raw: bytes, offer: Offer) -> None:
    assert Offer.decode(raw) == offer
    assert mistakable([row(raw), from_module("a:order")]) == {}


def test_what_an_older_worker_reads_of_this_row_are_pairs_of_texts_and_no_kind_that_a_process_can_have() -> None:
    pairs = json.decode(from_module("a:order").hosts, type=list[tuple[str, str]])
    assert [pair for pair in pairs if not pair[0].startswith(" ")] == [ORDER]
    assert len(pairs) == 4


def test_what_a_newer_worker_adds_to_its_row_is_no_kind_that_it_hosts() -> None:
    raw = b'[["order","1"],[" colour green order","1"],[" origin a:order\\norder","1"],[" schema","9"]]'
    assert Offer.decode(raw) == Offer(frozenset({ORDER}), {}, 9, {ORDER: "a:order"})
    assert hosted_by([row(raw)]) == {ORDER}


def test_a_given_name_that_workers_host_from_different_modules_is_told_with_all_its_origins() -> None:
    workers = [from_module(origin) for origin in ("b:order", "a:order", "a:former", "b:order")]
    assert mistakable(workers) == {ORDER: ["a:former", "a:order", "b:order"]}
    assert namesakes(workers) == {}


def test_one_module_on_many_workers_and_another_version_elsewhere_are_not_mistaken() -> None:
    renamed = [from_module("a:order"), from_module("a:order"), from_module("a:new_order")]
    assert mistakable([*renamed, from_module("b:order", ("order", "2")), from_module("b:order", ("order", ""))]) == {}


def test_a_moved_function_with_its_former_place_as_version_is_told() -> None:
    pair = ("run", "a:run")
    stayed = row(Offer(frozenset({pair}), {pair: "aa"}, 3))
    assert mistakable([stayed, stayed]) == {}
    assert mistakable([stayed, from_module("b:run", pair)]) == {pair: ["a:run", "b:run"]}


def test_default_names_of_several_modules_are_namesakes_and_not_mistaken() -> None:
    workers = [row(Offer(frozenset({("run", f"{module}:run")}))) for module in "ab"]
    assert namesakes(workers) == {"run": ["a:run", "b:run"]}
    assert mistakable(workers) == {}
