"""Codecs: what they seal they open, in its place and by its key alone, and they say what to do when they cannot."""

from __future__ import annotations

import base64

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as some

from perdure import limits
from perdure.errors import DefinitionError, UnreadablePayload
from perdure.store.sealed.codec import AesGcm, Zstd
from perdure.store.sealed.seal import PayloadSlot, Seal
from tests.store.sealed.ground import NEW, OLD, codecs

SLOT = PayloadSlot(b"result\0" + bytes(16), b"completed")
TEXT = b'{"name":"' + b"ann " * 200 + b'"}'


def sealed(plain: bytes, **keys: bytes) -> bytes:
    return Seal([Zstd(), AesGcm(keys or {"old": OLD})]).close(plain, SLOT)


@given(plain=some.binary(max_size=3000), digest=some.none() | some.binary(min_size=1, max_size=255))
def test_whatever_goes_through_the_chain_comes_back_whole_and_is_sealed_alike_each_time(
    plain: bytes, digest: bytes | None
) -> None:
    for chain in (Seal(codecs()), Seal([Zstd(above=1)]), Seal()):
        raw = chain.close(plain, SLOT, digest)
        opened = chain.open(raw, SLOT)
        assert (opened.plain, opened.digest) == (plain, digest)
        assert chain.close(plain, SLOT, digest) == raw
        assert not chain.hides or not plain or len(plain) < 4 or plain not in raw


@given(at=some.integers(min_value=0), bit=some.integers(0, 7), plain=some.binary(max_size=400))
def test_a_payload_of_which_one_bit_was_changed_is_refused(at: int, bit: int, plain: bytes) -> None:
    raw = bytearray(Seal([AesGcm({"old": OLD}, required=True)]).close(plain, SLOT))
    raw[at % len(raw)] ^= 1 << bit
    with pytest.raises(UnreadablePayload):
        Seal([AesGcm({"old": OLD}, required=True)]).open(bytes(raw), SLOT)


@given(raw=some.binary(max_size=200).map(lambda tail: b"\xc1" + tail))
def test_rubbish_behind_the_mark_is_refused_and_nothing_worse(raw: bytes) -> None:
    try:
        Seal(codecs()).open(raw, SLOT)
    except UnreadablePayload:
        pass


@pytest.mark.parametrize("cut", range(0, 60, 7))
def test_a_payload_that_was_cut_is_refused(cut: int) -> None:
    raw = sealed(b'{"a":1}')
    with pytest.raises(UnreadablePayload):
        Seal([AesGcm({"old": OLD}, required=True)]).open(raw[: min(cut, len(raw) - 1)], SLOT)


def test_a_payload_that_was_moved_to_another_place_is_refused() -> None:
    with pytest.raises(UnreadablePayload, match="moved from another place"):
        Seal(codecs()).open(sealed(b"[1]"), PayloadSlot(b"result\0" + b"x" * 16, b"completed"))


def test_every_key_opens_and_the_first_one_seals() -> None:
    old, both = sealed(b"[1]", old=OLD), sealed(b"[1]", new=NEW, old=OLD)
    chain = Seal([Zstd(), AesGcm({"new": NEW, "old": OLD})])
    assert chain.open(old, SLOT).plain == chain.open(both, SLOT).plain == b"[1]"
    assert Seal([AesGcm({"new": NEW})]).open(both, SLOT).plain == b"[1]"
    with pytest.raises(UnreadablePayload, match=r"key 'old', and here are only 'new'.*Add that key"):
        Seal([AesGcm({"new": NEW})]).open(old, SLOT)


def test_another_secret_under_the_same_id_does_not_open() -> None:
    with pytest.raises(UnreadablePayload, match="another one under the same id"):
        Seal([Zstd(), AesGcm({"old": NEW})]).open(sealed(b"[1]"), SLOT)


def test_payloads_from_before_stay_readable_unless_encryption_is_required() -> None:
    assert Seal(codecs()).open(b"[1]", SLOT).plain == b"[1]"
    assert Seal(codecs()).open(Seal([Zstd()]).close(TEXT, SLOT), SLOT).plain == TEXT
    strict = Seal([Zstd(), AesGcm({"old": OLD}, required=True)])
    for raw in (b"[1]", Seal([Zstd()]).close(TEXT, SLOT)):
        with pytest.raises(UnreadablePayload, match="required"):
            strict.open(raw, SLOT)


def test_a_codec_that_seals_nothing_yet_only_opens() -> None:
    waiting = Seal([AesGcm({"old": OLD}, seals=False)])
    assert waiting.close(b"[1]", SLOT) == b"[1]"
    assert waiting.open(Seal([AesGcm({"old": OLD})]).close(b"[1]", SLOT), SLOT).plain == b"[1]"
    assert not waiting.hides


def test_a_codec_that_is_not_there_is_named() -> None:
    with pytest.raises(UnreadablePayload, match="'aes-gcm', which this engine does not have"):
        Seal([Zstd()]).open(sealed(b"[1]"), SLOT)


def test_what_is_small_or_does_not_shrink_is_not_compressed() -> None:
    chain = Seal([Zstd()])
    assert chain.close(b'{"a":1}', SLOT) == b'{"a":1}'
    noise = bytes(range(1, 256)) * 2
    assert len(chain.close(TEXT, SLOT)) < len(TEXT) / 4
    assert Seal([Zstd(above=100)]).close(noise[:255], SLOT) == noise[:255]


def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(limits.PAYLOAD_BYTES * 4))
    with pytest.raises(UnreadablePayload, match="over the limit"):
        Zstd().open(b"", bomb, SLOT)
    silent = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(100))
    with pytest.raises(UnreadablePayload, match="over the limit"):
        Zstd().open(b"", silent, SLOT)


def test_keys_are_given_as_bytes_or_base64_and_by_text_with_commas() -> None:
    texts = (base64.b64encode(NEW).decode(), base64.urlsafe_b64encode(NEW).decode().rstrip("="))
    for text in texts:
        chain = Seal([AesGcm.from_text(f"new:{text}, old:{base64.b64encode(OLD).decode()},")])
        assert chain.close(b"[1]", SLOT) == Seal([AesGcm({"new": NEW})]).close(b"[1]", SLOT)


@pytest.mark.parametrize(
    "keys", ["", "new", "new:", "new:!!!", "new:c2hvcnQ=", ":AAAA", "a:AAAA,a:AAAA", "new:" + "A" * 44 + "A"]
)
def test_keys_that_are_none_are_refused_and_not_repeated(keys: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        AesGcm.from_text(keys)
    secret = keys.rpartition(":")[2]
    assert len(secret) < 4 or secret not in str(caught.value)


def test_no_secret_is_shown_by_a_codec_or_its_errors() -> None:
    shown = [repr(AesGcm({"old": OLD})), str(vars(Seal(codecs())))]
    for chain in (Seal([AesGcm({"old": NEW})]), Seal([AesGcm({"new": NEW})])):
        with pytest.raises(UnreadablePayload) as caught:
            chain.open(sealed(b"[1]"), SLOT)
        shown.append(str(caught.value))
    for text in shown:
        for secret in (OLD, NEW):
            assert base64.b64encode(secret).decode()[:12] not in text
            assert repr(secret)[2:20] not in text and secret.hex()[:16] not in text


@pytest.mark.parametrize("plain", [b'["A-17",1299]', None], ids=["a payload", "none"])
def test_the_format_of_this_release_is_read_by_later_ones(plain: bytes | None) -> None:
    written = bytes.fromhex(NOTHING if plain is None else FORMAT)
    opened = Seal(codecs()).open(written, SLOT)
    assert (opened.plain, opened.digest) == (plain, b"8 bytes!")
    assert Seal(codecs()).close(plain, SLOT, opened.digest) == written


def test_the_first_format_that_fits_its_place_alone_is_still_read() -> None:
    opened = Seal(codecs()).open(bytes.fromhex(FIRST_FORMAT), SLOT)
    assert (opened.plain, opened.digest) == (b'["A-17",1299]', b"8 bytes!")


FIRST_FORMAT = (
    "c1010801076165732d67636d036f6c6454a3209f60d386089043499b20f2e6fc3a00ab694adcc3aa655a07b6643445d2379c"
    "8ebb5e9d91de5bcde529df79d6f752"
)
FORMAT = (
    "c1030801076165732d67636d036f6c644207b3a02e3403b7e93a5346b463f806997eb5d4c88a789149cd8d14f2336b66ebbd"
    "2cc849165c227ad470b968a4d84140"
)
NOTHING = "c1040801076165732d67636d036f6c649247eba36eaa578334fda5715eef4de3e4ced933430d352722eda82968c7f1b3764836c0"
"""What Perdure 0.1 writes; it must stay readable."""
