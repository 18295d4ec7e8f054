"""What the store tells: search, count, histories and messages, in a total order."""

from __future__ import annotations

from hashlib import sha256

import pytest
from msgspec import json
from msgspec.structs import replace

from perdure.clock import SECOND
from perdure.kernel.event import Event, EventType, HistoryWanted
from perdure.kernel.process import Process, Status
from perdure.store.base import Search
from perdure.testing.conformance.trial import Trial, finished, forced, going_on, resting


class Reading:
    """Search, count, history, messages."""

    async def _some(self, trial: Trial) -> dict[str, Process]:
        worker = await trial.worker()
        now = await trial.time.now()
        rows: dict[str, Process] = {}
        for number, (kind, key) in enumerate(
            [("order", "order/1"), ("order", "order/2"), ("order", "other/1"), ("refund", "order/1"), ("refund", None)]
        ):
            name = f"{kind} {key}"
            attributes = json.encode({"city": "Riga", "number": number, "vip": number % 2 == 1})
            rows[name] = await trial.started(kind=kind, key=key, attributes=attributes)
            await trial.time.advance(1)
        ended = await trial.claim(worker, only=rows["order order/2"].id)
        rows["order order/2"] = await trial.done(finished(ended.claimed[0].process))
        held = await trial.claim(worker, only=rows["order other/1"].id)
        rows["order other/1"] = await trial.done(resting(held.claimed[0].process, now + SECOND, Status.HELD))
        return rows

    async def _names(self, trial: Trial, rows: dict[str, Process], search: Search) -> list[str]:
        by_id = {row.id: name for name, row in rows.items()}
        return [by_id[row.id] for row in await trial.store.search(search)]

    async def test_a_search_for_all_gives_the_newest_first(self, trial: Trial) -> None:
        rows = await self._some(trial)
        newest = list(reversed(rows.values()))
        assert await trial.store.search(Search()) == newest
        assert await trial.store.search(Search(limit=2)) == newest[:2]
        assert await trial.store.search(Search(limit=2, before_id=newest[1].id)) == newest[2:4]
        assert await trial.store.search(Search(before_id=newest[-1].id)) == []

    async def test_each_field_of_a_search_narrows(self, trial: Trial) -> None:
        rows = await self._some(trial)
        second = rows["order order/2"].created_at
        ids = tuple(row.id for row in rows.values())
        wanted = [
            (Search(kind="refund"), ["refund None", "refund order/1"]),
            (Search(kind="none"), []),
            (Search(key="order/1"), ["refund order/1", "order order/1"]),
            (Search(kind="order", key="order/1"), ["order order/1"]),
            (Search(key_prefix="order/"), ["refund order/1", "order order/2", "order order/1"]),
            (Search(key_prefix=""), ["refund order/1", "order other/1", "order order/2", "order order/1"]),
            (Search(statuses=(Status.HELD, Status.COMPLETED)), ["order other/1", "order order/2"]),
            (Search(statuses=(Status.BROKEN,)), []),
            (Search(created_from=second, created_to=second + SECOND), ["order order/2"]),
            (Search(created_to=second), ["order order/1"]),
            (Search(kind="order", statuses=(Status.RUNNING,), key_prefix="o"), ["order order/1"]),
            (Search(ids=(rows["refund None"].id, rows["order order/1"].id)), ["refund None", "order order/1"]),
            (Search(ids=(rows["refund None"].id,), kind="order"), []),
            (Search(ids=ids, statuses=(Status.COMPLETED, Status.HELD)), ["order other/1", "order order/2"]),
            (Search(ids=(*ids, *ids), limit=2), ["refund None", "refund order/1"]),
            (Search(ids=()), []),
        ]
        for search, names in wanted:
            assert (search, await self._names(trial, rows, search)) == (search, names)

    async def test_a_search_by_ids_finds_each_however_many_they_are(self, trial: Trial) -> None:
        first, second = await trial.started(kind="order"), await trial.started(kind="refund")
        nobody = tuple(number.to_bytes(16, "big") for number in range(12_000))
        ids = (first.id, *nobody, second.id)
        for given in (ids, ids[::-1]):
            assert await trial.store.search(Search(ids=given, limit=len(given))) == [second, first]
            assert await trial.store.search(Search(ids=given, kind="order", limit=len(given))) == [first]
            assert await trial.store.count(Search(ids=given)) == [
                ("order", Status.RUNNING, 1),
                ("refund", Status.RUNNING, 1),
            ]
        assert await trial.store.search(Search(ids=nobody, limit=1)) == []

    async def test_a_search_for_roots_leaves_out_what_another_process_has_started(self, trial: Trial) -> None:
        root = await trial.started(kind="order")
        child = await trial.started(kind="order", parent=root.id)
        await trial.started(kind="@bank", parent=child.id)
        assert [row.id for row in await trial.store.search(Search())] == [child.id, root.id]
        assert [row.id for row in await trial.store.search(Search(roots=True))] == [root.id]
        assert await trial.store.search(Search(ids=(child.id,), roots=True)) == []
        assert await trial.store.count(Search(roots=True)) == [("order", Status.RUNNING, 1)]

    async def test_a_search_by_attributes_asks_for_equal_values(self, trial: Trial) -> None:
        rows = await self._some(trial)
        everyone = list(reversed(rows))
        wanted = [
            ((("city", '"Riga"'),), everyone),
            ((("city", '"riga"'),), []),
            ((("number", "3"),), ["refund order/1"]),
            ((("number", '"3"'),), []),
            ((("vip", "true"),), ["refund order/1", "order order/2"]),
            ((("vip", "1"),), []),
            ((("city", '"Riga"'), ("number", "0")), ["order order/1"]),
            ((("city", '"Riga"'), ("vip", "null")), []),
            ((("none", "null"),), []),
            ((("none", "1"),), []),
        ]
        for attributes, names in wanted:
            assert (attributes, await self._names(trial, rows, Search(attributes=attributes))) == (attributes, names)

    @pytest.mark.parametrize(
        ("stored", "same", "others"),
        [
            ("9007199254740993", ("9007199254740993",), ("9007199254740992", "9007199254740994")),
            ("-9007199254740993", ("-9007199254740993",), ("-9007199254740992",)),
            ("9223372036854775807", ("9223372036854775807",), ("9223372036854775806", "9223372036854775808")),
            ("1e19", ("1e19", "10000000000000000000"), ("10000000000000000000000", "-1" + "0" * 400)),
            ("1.0", ("1", "1.0", "1e0"), ("2",)),
            ("1", ("1", "1.0"), ("1.5",)),
        ],
    )
    async def test_numbers_are_found_exactly_however_large_they_are(
        self, trial: Trial, stored: str, same: tuple[str, ...], others: tuple[str, ...]
    ) -> None:
        row = await trial.started(attributes=b'{"account":' + stored.encode() + b"}")
        for wanted in (*same, *others):
            found = await trial.store.search(Search(attributes=(("account", wanted),)))
            assert (wanted, [one.id for one in found]) == (wanted, [row.id] if wanted in same else [])

    async def test_attributes_with_awkward_names_and_values_are_found(self, trial: Trial) -> None:
        row = await trial.started(
            attributes='{"a.b":1,"a\\"b":"x","$":[1,{"b":null}],"ключ":"é","n":null,"f":1.5,"o":{"b":1,"a":2}}'.encode()
        )
        for attributes in (
            (("a.b", "1"),),
            (('a"b', '"x"'),),
            (("$", '[1,{"b":null}]'),),
            (("ключ", '"é"'),),
            (("ключ", '"\\u00e9"'),),
            (("n", "null"),),
            (("f", "1.5"),),
            (("o", '{"a":2,"b":1}'),),
        ):
            found = await trial.store.search(Search(attributes=attributes))
            assert (attributes, [one.id for one in found]) == (attributes, [row.id])

    async def test_a_count_counts_by_kind_and_status(self, trial: Trial) -> None:
        rows = await self._some(trial)
        assert await trial.store.count(Search()) == [
            ("order", Status.RUNNING, 1),
            ("order", Status.HELD, 1),
            ("order", Status.COMPLETED, 1),
            ("refund", Status.RUNNING, 2),
        ]
        assert await trial.store.count(Search(kind="order", limit=1)) == [
            ("order", Status.RUNNING, 1),
            ("order", Status.HELD, 1),
            ("order", Status.COMPLETED, 1),
        ]
        assert await trial.store.count(Search(ids=(rows["refund None"].id,))) == [("refund", Status.RUNNING, 1)]
        assert await trial.store.count(Search(key="none")) == []

    async def test_a_count_counts_all_pages(self, trial: Trial) -> None:
        rows = await self._some(trial)
        everything = await trial.store.count(Search())
        for row in rows.values():
            assert await trial.store.count(Search(before_id=row.id, limit=1)) == everything

    async def test_a_history_is_told_from_where_and_how_far_it_is_asked(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        await trial.done(going_on(row, steps=9))
        wanted = [
            ({}, [1, 2, 3, 4, 5, 6, 7, 8, 9]),
            ({"limit": 3}, [1, 2, 3]),
            ({"after": 3, "limit": 3}, [4, 5, 6]),
            ({"after": 9}, []),
            ({"backward": True, "limit": 3}, [9, 8, 7]),
            ({"backward": True, "after": 7, "limit": 3}, [6, 5, 4]),
            ({"backward": True, "after": 1}, []),
        ]
        for asked, numbers in wanted:
            told = await trial.store.history(row.id, 1, **asked)  # type: ignore[arg-type]
            assert (asked, [event.number for event in told]) == (asked, numbers)
        assert await trial.store.history(row.id, 2) == []
        assert await trial.store.history(trial.ids.new_id(), 1) == []

    async def test_a_history_is_that_of_the_run_asked_for(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        first = finished(row, Status.FAILED)
        ended = await trial.done(first)
        second = forced(replace(ended, run=2, events=0), EventType.RUN_OPENED, status=Status.RUNNING)
        await trial.done(second)
        assert await trial.store.history(row.id, 1) == list(first.events)
        assert await trial.store.history(row.id, 2) == list(second.events)

    async def test_many_histories_are_told_at_once_each_in_its_run_and_its_bounds(self, trial: Trial) -> None:
        worker = await trial.worker()
        one, two, bare = [await trial.owned(worker) for _ in range(3)]
        first = finished(one, Status.FAILED)
        ended = await trial.done(first)
        again = forced(replace(ended, run=2, events=0), EventType.RUN_OPENED, status=Status.RUNNING)
        await trial.done(again)
        long = going_on(two, steps=9)
        await trial.done(long)
        unknown = trial.ids.new_id()
        wants = [
            HistoryWanted(bare.id, 1, 5),
            HistoryWanted(two.id, 1, 7, first=3),
            HistoryWanted(unknown, 1, 9),
            HistoryWanted(one.id, 2, 100),
        ]
        told = await trial.store.histories(wants, most=1 << 20)
        assert told == {one.id: list(again.events), two.id: list(long.events[2:7])}
        left = [want for want in wants if want.process not in told]
        assert await trial.store.histories(left, most=1 << 20) == {bare.id: [], unknown: []}, "they have no events"
        assert await trial.store.histories([HistoryWanted(one.id, 1, 9)], most=1) == {one.id: list(first.events)}
        assert await trial.store.histories([], most=1) == {}

    async def test_many_histories_end_after_so_many_bytes_and_each_is_whole(self, trial: Trial) -> None:
        worker = await trial.worker()
        whole: dict[bytes, list[Event]] = {}
        for _ in range(4):
            row = await trial.owned(worker)
            commit = going_on(row, steps=3)
            text = "".join(sha256(row.id + bytes([n])).hexdigest() for n in range(50))  # compresses to a half at best
            large = tuple(replace(event, payload=json.encode(text)) for event in commit.events)
            await trial.done(replace(commit, events=large))
            whole[row.id] = list(large)
        wants = [HistoryWanted(id, 1, 3) for id in reversed(whole)]
        for most, least, most_of_them in ((1, 1, 1), (6_000, 1, 2), (1 << 20, 4, 4)):
            told = await trial.store.histories(wants, most=most)
            assert told == {id: whole[id] for id in sorted(whole)[: len(told)]}
            assert least <= len(told) <= most_of_them

    async def test_messages_are_told_above_the_number_asked_for_by_process_and_number(self, trial: Trial) -> None:
        one, two, three = [await trial.started() for _ in range(3)]
        for row in (two, one, two, one, three, two):
            await trial.send(row.id)
        told = await trial.store.messages([(two.id, 1), (one.id, 0)])
        assert [(message.process, message.number) for message in told] == [
            (one.id, 1),
            (one.id, 2),
            (two.id, 2),
            (two.id, 3),
        ]
        assert await trial.store.messages([(three.id, 1), (trial.ids.new_id(), 0)]) == []
        assert await trial.store.messages([]) == []

    @pytest.mark.parametrize("prefix", ["%", "_", "\\", "*", "?", "[a]", "a%", "é", "😀", "'"])
    async def test_a_key_prefix_means_what_it_says(self, trial: Trial, prefix: str) -> None:
        keys = ["%", "_", "\\", "*", "?", "[a]", "a%", "ab", "b", "é", "e", "😀", "'", "x%"]
        for key in keys:
            await trial.started(key=key, code="prefix")
            await trial.started(key=key + "1", code="prefix")
        found = sorted(row.key or "" for row in await trial.store.search(Search(key_prefix=prefix)))
        assert found == sorted([prefix, prefix + "1"])

    async def test_tasks_are_left_out_of_a_search_that_does_not_name_them(self, trial: Trial) -> None:
        order, other = await trial.started(key="order/1"), await trial.started(kind="Zebra")
        task = await trial.started(kind="@bank", key="order/1")
        assert {row.id for row in await trial.store.search(Search())} == {order.id, other.id}
        assert {row.id for row in await trial.store.search(Search(tasks=True))} == {order.id, other.id, task.id}
        for named in (Search(kind="@bank"), Search(ids=(task.id,)), Search(key="order/1")):
            assert task.id in {row.id for row in await trial.store.search(named)}
        assert [kind for kind, _, _ in await trial.store.count(Search())] == ["Zebra", "order"]
        assert [kind for kind, _, _ in await trial.store.count(Search(tasks=True))] == ["@bank", "Zebra", "order"]
