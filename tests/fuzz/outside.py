"""Entries to what comes from outside the payloads: names, URLs, settings, sealed bytes, frames, news, command lines."""

from __future__ import annotations

import os
import re
from base64 import b64encode
from functools import cache
from typing import Any

from cyclopts import CycloptsError

from perdure import settings
from perdure.authoring.workflow import workflow
from perdure.cli import event_text, inspect, text, worker
from perdure.cli.app import whole_app
from perdure.cli.options import attributes_of, plain
from perdure.cli.start import _calls, whole_input
from perdure.client import validation
from perdure.clock import Computer
from perdure.kernel.event import Event, EventType
from perdure.kernel.failure import safe_text
from perdure.kernel.names import check_key, check_name, id_bytes, id_text
from perdure.runtime.steps.isolated.protocol import FRAME_BYTES, Frames, framed, read_order, read_said
from perdure.store.base import Search
from perdure.store.notifications import of_channel
from perdure.store.postgres.url import address_of
from perdure.store.sealed.codec import AesGcm, Zstd
from perdure.store.sealed.seal import PayloadSlot, Seal, named, reference
from perdure.store.sqlite.notify import Hint, read_hint
from perdure.store.url import store_for
from tests.fuzz.entry import Entry, as_text, refused, same

SECRET = bytes(range(32))
PLACE = b"state\0" + bytes(16)
SLOT = PayloadSlot(PLACE, b"said")


@workflow(name="fuzz/typed")
async def typed(a: int, b: str, c: list[float], *, d: bool = False) -> None:
    """What typed arguments are read for."""


def _names(raw: bytes) -> None:
    given = as_text(raw)
    for check in (check_name, check_key):
        with refused():
            same(given, check(given), "the name")
            if not given.isprintable() or len(given.encode()) > 255:
                raise AssertionError(f"{given!r:.300} was let in")
    with refused():
        id = id_bytes(given)
        same(id, id_bytes(id_text(id)), "the id")
        if id_text(id) != given.lower() and id.hex() != given.lower():
            raise AssertionError(f"{given!r} was taken for an id")
    shown = safe_text(given, 100)
    same(shown, safe_text(shown, 100), "what is safe to show")
    if len(shown.encode()) > 100:
        raise AssertionError(f"{len(shown.encode())} bytes in place of 100")


def _url(raw: bytes) -> None:
    given = as_text(raw)
    secret = given.count("secret-word") == 1 and re.match(r"postgres(ql)?://[^/@]*:secret-word", given) is not None
    with refused(secret="secret-word" if secret else None):
        store_for(given, Computer())
    with refused(secret="secret-word" if secret else None):
        address = address_of(given)
        for dsn in address.dsns:
            dsn.encode()
        again = address_of(address.dsns[0])
        same(address.dsns[0], again.dsns[0], "the address")
        if secret and "secret-word" in address.shown:
            raise AssertionError(f"the password of {given!r} is shown: {address.shown}")


def _duration(raw: bytes) -> None:
    given = as_text(raw)
    with refused():
        validation.duration(text.seconds_of(given), "the deadline")
    with refused():
        text.span(text.seconds_of(given))


def _keys(raw: bytes) -> None:
    with refused():
        keys = AesGcm.from_text(as_text(raw))
        sealed = keys.seal(b"plain", PLACE)
        if sealed is not None:
            same(b"plain", keys.open(*sealed, PLACE), "what the keys seal")


@cache
def chain() -> Seal:
    """Codecs as a careful person has them."""
    return Seal([Zstd(above=8), AesGcm({"a": SECRET})])


def _sealed(raw: bytes) -> None:
    """Whatever was not sealed by us is never taken for a payload: it is passed on as it is, or refused."""
    for seal in (chain(), Seal([Zstd(above=8)]), Seal()):
        with refused():
            opened = seal.open(raw, SLOT)
            if (
                seal is chain()
                and raw[:1] == b"\xc1"
                and raw not in _SEALED
                and raw[3:4] != b"\0"
                and b"aes-gcm" in raw[:20]
            ):
                raise AssertionError(f"{raw!r:.300} was opened as {opened!r:.300}")
    same(raw, chain().open(chain().close(raw, SLOT), SLOT).plain, "the sealed payload")
    name = named(raw)
    if name is not None and not (len(name) == 64 and set(name) <= set("0123456789abcdef")):
        raise AssertionError(f"a blob is called {name!r}")


def _frames(raw: bytes) -> None:
    """A cell's wire: whole frames in whatever pieces, then what they say; refusals are those that a keeper expects."""
    at, frames, bodies = 0, Frames(), []
    while at < len(raw):
        step = 1 + raw[at] % 37
        frames.feed(raw[at : at + step])
        at += step
        try:
            while (body := frames.take()) is not None:
                bodies.append(body)
        except ValueError:
            if int.from_bytes(raw[sum(4 + len(body) for body in bodies) :][:4], "big") <= FRAME_BYTES:
                raise
            break
    for body in (*bodies, raw):
        for read in (read_said, read_order):
            try:
                message: Any = read(body)
            except ValueError:
                continue
            frames = Frames()
            frames.feed(framed(message))
            again = frames.take()
            assert again is not None
            same(framed(message), framed(read(again)), "the message")


def _notifications(raw: bytes) -> None:
    given = as_text(raw)
    for channel in ("due", "done", "told", "published", "other"):
        of_channel(channel, given)
    for notice in (read_hint(raw), read_hint(raw[:100])):
        assert notice is None or isinstance(notice, Hint)


def _sealing(raw: bytes) -> None:
    """The module that PERDURE_SEAL names; whatever is fed, it is none that is there, so that nothing is imported."""
    given = as_text(raw).replace("\0", "").replace("/", "|")
    before = os.environ.get(settings.SEAL)
    try:
        for name in (f"no-such {given}", f".{given}.", f"/nowhere/{given}.py"):
            os.environ[settings.SEAL] = name
            with refused():
                settings.sealing()
    finally:
        os.environ.pop(settings.SEAL)
        if before is not None:
            os.environ[settings.SEAL] = before


def _typed(raw: bytes) -> None:
    """What a person types: arguments, inputs, filters, queues."""
    given = as_text(raw)
    with refused():
        plain(given)
    with refused():
        whole_input(typed, given)
    with refused():
        given_pairs = attributes_of([given]).items()
        validation.search(Search(attributes=tuple((name, inspect._json_text(value)) for name, value in given_pairs)))
    with refused():
        validation.search(Search(attributes=(("a", given),)))
    with refused():
        worker._queue(given)
    with refused():
        list(_calls(typed, enumerate(given.split("\n"), 1), 0))


def _command_line(raw: bytes) -> None:
    try:
        whole_app().parse_args(as_text(raw).split("\n"), print_error=False, exit_on_error=False)
    except CycloptsError:
        pass


def _shown(raw: bytes) -> None:
    """Whatever a history holds is shown, as plain text and as JSON, and steers no terminal."""
    for type in EventType:
        event = Event(1, 1, type, 0, "1", "charge", raw, message=1)
        for letter in (event_text.what(event), event_text.detail(event, {}), text.payload(raw)):
            if not letter.replace("\n", "").replace("\t", "").isprintable() and safe_text(letter, 10_000) != letter:
                raise AssertionError(f"{letter!r:.300} would be printed")
        event_text.as_json(event, {})


_AES = chain().close(b'"a text that is long enough to be compressed, compressed, compressed, compressed"', SLOT)
_ZSTD = Seal([Zstd(above=8)]).close(b'"compressed, compressed, compressed, compressed, compressed"', SLOT)
_SEALED = (_AES, _ZSTD)

ENTRIES = (
    Entry(
        "name",
        _names,
        (
            b"order/A-17",
            "é".encode(),
            b"0192f0c1-2b3c-7def-8123-456789abcdef",
            b"{" + b"f" * 32 + b"}",
            b"\xed\xa0\x80",
        ),
    ),
    Entry(
        "url",
        _url,
        (
            b"sqlite:///shop.db",
            b"sqlite://:memory:",
            b"sqlite:///%00.db",
            b"postgresql://u:secret-word@h:5432/d?schema=perdure",
            b"postgresql://a,b:2,[::1]:3/d?pooler=transaction",
            b"postgres:///d?host=/tmp&dbname=x",
            b"postgresql://h/d?x=%ff",
        ),
    ),
    Entry("duration", _duration, (b"90s", b"1.5 h", b"7d", b"15min", b"1e3", b"nan", b"-inf d")),
    Entry("keys", _keys, (b"a:" + b64encode(SECRET), b"b:" + b64encode(SECRET) + b", a:" + b64encode(SECRET)[:-1])),
    Entry(
        "sealed",
        _sealed,
        (*_SEALED, reference(b"blob"), b"\xc1", b"\xc1\x01\x00", b"{}", b"\xc1\x01\x08\x01\x04zstd\x00"),
    ),
    Entry(
        "frames",
        _frames,
        (
            b'\0\0\0\x10{"type":"Ready"}',
            b'\0\0\0\x1f{"type":"Beat","progress":null}',
            b'{"type":"Done","result":[1]}',
            b'{"type":"Failed","failure":{"type":"a","message":"b"},"retries":true}',
            b"\xff\xff\xff\xff",
            b"\0\0\0\0",
            b'{"source":"a","key":"b","memory":null,"args":[],"step":"c","number":1,"idempotency_key":"d","process":"e",'
            b'"kind":"f","process_key":null,"timeout":1.5,"last_progress":null}',
        ),
    ),
    Entry(
        "news",
        _notifications,
        (
            b'{"kinds":["a"],"due":["AAAAAAAAAAAAAAAAAAAAAA=="]}',
            b"AAAAAAA=",
            b"0192f0c1-2b3c-7def-8123-456789abcdef",
            b'{"news":{"kinds":["a"],"told":["AAA="]},"due":3,"done":1}',
            b'{"news":{"kinds":["\xff"]}}',
        ),
    ),
    Entry("setting", _sealing, (b"./seal.py", b"a b", b"/dev/null/x.py", b"..", b"a-b.c")),
    Entry(
        "typed",
        _typed,
        (b"a=1", b"bank=5", b'[1,"b",[1.5]]', b'{"input":[1,"b",[2.5]],"key":"k"}\n{"input":{"a":1}}', b'"\\u0000"'),
    ),
    Entry(
        "command line",
        _command_line,
        (b"ps\n--limit\n5", b"show\nA-17\n--json", b"queue\nlimit\nbank\n--rate\n5", b"start\nshop\n1"),
    ),
    Entry("shown", _shown, (b'"a\x1b[31m"', b"\x9b31m", b'{"who":"a","why":"b"}', b"\xff", "\u202e".encode())),
)
