"""Hostile text: every store takes it and gives it back unchanged, or refuses it; all give the same verdict."""

from __future__ import annotations

import pytest
from msgspec import json
from msgspec.structs import replace

from perdure.errors import BadRecord
from perdure.kernel.commit import Start, StartVerdict
from perdure.kernel.event import Event, EventType
from perdure.kernel.worker import WorkerRow
from perdure.store.base import Search
from perdure.testing.conformance.trial import SILENCE, Trial, going_on

_SQL = (
    "'", "''", '"', "\\", "\\'", "';--", "'; DROP TABLE process; --", "1; SELECT pg_sleep(9)", "' OR '1'='1",
    "$1", "$$", "$tag$", ":name", "?", "?1", "@x", "%s", "%(a)s", "{}", "{0}", "{a!r}", "E'\\x00'", "U&'\\0000'",
    "NULL", "null", "None", "DEFAULT", "\\N", "\\.", "/* */", "--", "x'00'", "%", "_", "%%", "[a-z]", "*", "^$",
    "(1,2)", "{1,2}", '{"a":1}', "[]", "{}{", "\\\\", "\\n", "\\u0000", "&#0;", ",", "a,b", ";", "|", "`id`", "$(id)",
)  # fmt: skip
_SPACE = (
    " ", "  ", " a", "a ", "\t", "\n", "\r\n", "a\nb", "\x0b", "\x0c", "\x1b[31m", "\x7f", "\x01", "\x1f", "\x80",
    "\x85", "\xa0", "\u2028", "\u2029", "\u3000", "\u200b", "\u200d", "\ufeff", "\ufeffa", "\u00ad", "\u180e", "\u2060",
)  # fmt: skip
_UNICODE = (
    "é", "e\u0301", "ﬁ", "ß", "İ", "ı", "ǅ", "Å", "\u212b", "Ω", "\u2126", "日本語", "русский", "עברית", "\u202eabc",
    "\u202d", "\u2066a\u2069", "مرحبا", "😀", "👩‍👩‍👧", "🇱🇻", "\U0001f3f4\U000e0067\U000e007f", "\ufffd", "\ufffe",
    "\uffff", "\U0010ffff", "\U00010000", "Z\u0351\u036b\u0343", "\ue000", "𝕏", "ｆｕｌｌ", "0️⃣", "\u0640", "ﷺ",
)  # fmt: skip
_OTHER = (
    "", "0", "-1", "-0.5", "1e400", "NaN", "Infinity", "true", "a" * 255, "é" * 127, "😀" * 63, "../../etc/passwd",
    "C:\\con", "file:///etc/passwd", "http://x/?a=b&c=d#e", "<script>alert(1)</script>", "&amp;", "]]>", "<!--",
    "javascript:1", "A", "a", "AA", "aA", "Ab", "__proto__", "con", "a/b/c", "order/1", "order/1 ", "order/01", "a.b.c",
    "a:b",
)  # fmt: skip
HOSTILE = tuple(dict.fromkeys(_SQL + _SPACE + _UNICODE + _OTHER))
"""Text that a database may keep: no NUL, and it can be written as UTF-8."""

UNKEEPABLE = (
    "\0", "a\0", "\0a", "a\0b", "é\0", "\ud800", "a\ud800b", "\udfff", "\udc00\ud800", "\ud83d", "\ude00\0", "😀\udc80",
)  # fmt: skip
"""Text that no store may keep: one would cut it, another refuse it."""

BYTES = (
    b"", b"\0", b"\0\0\0", b"\xff\xfe", b"\xed\xa0\x80", b"\xc3", b"null", b'"\\u0000"', b"{", b"\\x41", b"\\", b"'",
    bytes(range(256)),
)  # fmt: skip
"""Payloads are opaque: none of these may be looked into."""

UNSEARCHABLE = (b"{", b"", b'{"a":"\\u0000"}', b'{"a\\u0000":1}', b'{"a":"\\ud800"}', b'{"a":NaN}', b"\xff")
"""Attributes that are not JSON, or that one database could search and another not."""

ADVICE = "leave (it )?out"
"""What the text of a refusal says to do."""


class Hostile:
    """At least a hundred strings in every text column, and any bytes in every payload."""

    async def test_there_are_more_than_a_hundred(self, trial: Trial) -> None:
        assert len(HOSTILE) >= 140

    async def test_keys_and_kinds_come_back_as_they_went_in(self, trial: Trial) -> None:
        starts = [Start(trial.process(key=text, input=text.encode())) for text in HOSTILE]
        starts += [Start(trial.process(kind=text, code=text, awaiting=text, input=b"[]")) for text in HOSTILE]
        answers = await trial.store.start(starts)
        assert {answer.verdict for answer in answers} == {StartVerdict.CREATED}
        now = await trial.time.now()
        by_id = {row.id: row for row in await trial.stored()}
        for start in starts:
            expected = replace(start.process, due_at=now, created_at=now, changed_at=now)
            assert by_id[start.process.id] == expected
        again = await trial.store.start([Start(trial.process(key=text, input=text.encode())) for text in HOSTILE])
        assert [answer.verdict for answer in again] == [StartVerdict.EXISTS] * len(HOSTILE)
        assert [answer.id for answer in again] == [start.process.id for start in starts[: len(HOSTILE)]]

    async def test_keys_and_kinds_are_found_by_themselves_alone(self, trial: Trial) -> None:
        worker = await trial.worker()
        rows = {text: trial.process(kind=text, code=text, key=text) for text in HOSTILE}
        await trial.store.start([Start(row) for row in rows.values()])
        for text, row in rows.items():
            for search in (Search(key=text), Search(kind=text)):
                assert (text, [found.id for found in await trial.store.search(search)]) == (text, [row.id])
        hosted = tuple((text, text) for text in HOSTILE[::2])
        taken = (await trial.claim(worker, limit=1000, hosted=hosted)).claimed
        assert sorted(one.process.kind for one in taken) == sorted(HOSTILE[::2])

    async def test_a_key_prefix_finds_what_begins_with_it(self, trial: Trial) -> None:
        await trial.store.start([Start(trial.process(key=text)) for text in HOSTILE])
        for prefix in HOSTILE:
            if prefix:
                found = sorted(row.key or "" for row in await trial.store.search(Search(key_prefix=prefix, limit=1000)))
                assert (prefix, found) == (prefix, sorted(text for text in HOSTILE if text.startswith(prefix)))

    async def test_a_count_is_ordered_by_the_bytes_of_the_kind(self, trial: Trial) -> None:
        await trial.store.start([Start(trial.process(kind=text)) for text in HOSTILE])
        counted = await trial.store.count(Search(tasks=True))
        assert [kind for kind, _, _ in counted] == sorted(HOSTILE, key=str.encode)

    async def test_message_names_and_keys_come_back_as_they_went_in(self, trial: Trial) -> None:
        row = await trial.started()
        sent = [trial.signal(row.id, name=text, key=text, payload=text.encode()) for text in HOSTILE]
        await trial.store.send(sent)
        now = await trial.time.now()
        kept = await trial.store.messages([(row.id, 0)])
        assert kept == [replace(message, number=number, at=now) for number, message in enumerate(sent, 1)]
        again = await trial.store.send([trial.signal(row.id, key=text) for text in HOSTILE])
        assert [answer.number for answer in again] == list(range(1, len(HOSTILE) + 1))
        assert {answer.verdict for answer in again} == {"duplicate"}

    async def test_events_and_states_come_back_as_they_went_in(self, trial: Trial) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        events = tuple(
            Event(number, 1, EventType.STEP_COMPLETED, 0, text, text, text.encode())
            for number, text in enumerate(HOSTILE, 1)
        )
        commit = going_on(row, events=events, awaiting=HOSTILE[5])
        await trial.done(commit)
        assert await trial.store.history(row.id, 1) == list(commit.events)

    async def test_any_bytes_come_back_as_they_went_in(self, trial: Trial) -> None:
        worker = await trial.worker()
        for value in BYTES:
            row = await trial.owned(worker, input=value, state=value, progress=value)
            await trial.send(row.id, payload=value, sender=value)
            event = Event(1, 1, EventType.STEP_COMPLETED, 0, "1", "charge", value, value)
            commit = going_on(row, events=(event,), state=value, result=value, error=value)
            after = await trial.done(commit)
            whole = await trial.whole(row.id)
            assert (after.input, after.state, after.progress, after.result, after.error) == (value,) * 5
            assert whole.events == commit.events
            assert (whole.messages[0].payload, whole.messages[0].sender) == (value, value)

    async def test_a_batch_of_eight_mebibytes_comes_back_whole(self, trial: Trial) -> None:
        starts = [Start(trial.process(input=bytes([65 + number]) * (2 << 20))) for number in range(4)]
        await trial.store.start(starts)
        for start in starts:
            assert (await trial.row(start.process.id)).input == start.process.input

    async def test_a_key_too_long_for_an_index_is_kept_whole_or_refused(self, trial: Trial) -> None:
        key = "".join(chr(33 + trial.ids.new_id()[-1] % 90) for _ in range(9000))
        try:
            await trial.store.start([Start(trial.process(key=key))])
        except BadRecord:
            assert await trial.stored() == []
        else:
            assert [row.key for row in await trial.stored()] == [key]

    async def test_attributes_with_hostile_names_and_values_are_found(self, trial: Trial) -> None:
        row = await trial.started(attributes=json.encode({text: text for text in HOSTILE}))
        kept = (await trial.row(row.id)).attributes
        assert json.decode(kept or b"") == {text: text for text in HOSTILE}
        for text in HOSTILE:
            found = await trial.store.search(Search(attributes=((text, json.encode(text).decode()),)))
            assert (text, [one.id for one in found]) == (text, [row.id])
            assert await trial.store.search(Search(attributes=((text, '"other"'),))) == []

    async def test_worker_names_come_back_as_they_went_in(self, trial: Trial) -> None:
        for text in HOSTILE[::7]:
            worker = await trial.store.enlist(WorkerRow(id=trial.ids.new_id(), name=text, hosts=text.encode()), SILENCE)
            [known] = [one for one in await trial.store.workers() if one.id == worker.id]
            assert (known.name, known.hosts) == (text, text.encode())

    @pytest.mark.parametrize("text", UNKEEPABLE, ids=ascii)
    async def test_text_that_no_database_can_keep_is_refused_and_nothing_is_stored(
        self, trial: Trial, text: str
    ) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        before = await trial.whole(row.id)
        for field in ("kind", "key", "code", "awaiting"):
            with pytest.raises(BadRecord, match=ADVICE):
                await trial.store.start([Start(trial.process(**{field: text}))])
        for field in ("name", "key"):
            with pytest.raises(BadRecord, match=ADVICE):
                await trial.store.send([trial.signal(row.id, **{field: text})])
        for field in ("place", "name"):
            event = replace(Event(1, 1, EventType.TIMER_FIRED, 0), **{field: text})
            with pytest.raises(BadRecord, match=ADVICE):
                await trial.commit(going_on(row, events=(event,)))
        with pytest.raises(BadRecord, match=ADVICE):
            await trial.commit(going_on(row, awaiting=text))
        assert await trial.whole(row.id) == before
        assert len(await trial.stored()) == 1

    @pytest.mark.parametrize("attributes", UNSEARCHABLE, ids=ascii)
    async def test_attributes_that_no_database_can_search_are_refused(self, trial: Trial, attributes: bytes) -> None:
        worker = await trial.worker()
        row = await trial.owned(worker)
        with pytest.raises(BadRecord, match=ADVICE):
            await trial.started(attributes=attributes)
        with pytest.raises(BadRecord, match=ADVICE):
            await trial.commit(going_on(row, attributes=attributes))
        assert await trial.stored() == [row]

    @pytest.mark.parametrize("text", UNKEEPABLE, ids=ascii)
    async def test_asking_for_text_that_cannot_be_kept_finds_nothing(self, trial: Trial, text: str) -> None:
        await trial.started(key="a")
        for search in (Search(key=text), Search(kind=text), Search(key_prefix=text)):
            assert await trial.store.search(search) == []
            assert await trial.store.count(search) == []
