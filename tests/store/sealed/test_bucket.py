"""The offload in an object store: of obstore in memory, and of a server that speaks S3 where one is installed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from obstore.store import MemoryStore, S3Store

from perdure.errors import DefinitionError
from perdure.store.sealed.offload import Bucket
from perdure.testing.conformance.trial import finished, going_on
from tests.store.sealed.conftest import Tried

NOISE = bytes(range(256)) * 4
KEYS = {"access_key_id": "test", "secret_access_key": "test", "region": "us-east-1"}


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """A server of our own that speaks S3."""
    server = pytest.importorskip(
        "moto.server", reason="the double of an object store is not installed"
    ).ThreadedMotoServer(port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(params=["memory", "s3"])
def objects(request: pytest.FixtureRequest) -> Any:
    """An empty bucket of each kind in turn."""
    if request.param == "memory":
        return MemoryStore()
    endpoint = request.getfixturevalue("s3_endpoint")
    import urllib.request

    name = f"b{abs(hash(request.node.name)) % 10**12}"
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{name}", method="PUT")).close()
    return S3Store(name, endpoint=endpoint, client_options={"allow_http": True}, **KEYS)


@pytest.fixture
def bucket(objects: Any) -> Bucket:
    """An offload there, which removes at once what nobody needs."""
    made = Bucket(objects, above=200)
    made.grace = 0.0
    return made


async def test_an_object_comes_back_as_it_was_put_and_an_absent_one_is_told(bucket: Bucket) -> None:
    await bucket.put(b"a" * 16, "aa", NOISE)
    await bucket.put(b"a" * 16, "aa", NOISE)
    assert await bucket.get(b"a" * 16, "aa") == NOISE
    with pytest.raises(LookupError):
        await bucket.get(b"a" * 16, "bb")


async def test_objects_are_looked_at_in_order_and_removed_only_when_they_are_old(objects: Any, bucket: Bucket) -> None:
    ids = [bytes([n]) * 16 for n in (1, 2, 3)]
    for id in ids:
        await bucket.put(id, "aa", NOISE)
        await bucket.put(id, "bb", NOISE)
    assert await bucket.old(b"", 2) == [(id, ["aa", "bb"]) for id in ids[:2]]
    assert await bucket.old(ids[1], 2) == [(ids[2], ["aa", "bb"])]
    young = Bucket(objects)
    assert await young.old(b"", 9) == [(id, []) for id in ids]
    await young.delete(ids[0], ["aa"])
    assert await bucket.get(ids[0], "aa") == NOISE
    await bucket.delete(ids[0], ["aa", "cc"])
    assert await bucket.old(b"", 1) == [(ids[0], ["bb"])]


async def test_large_payloads_live_in_a_bucket_and_go_with_their_process(tried: Tried, bucket: Bucket) -> None:
    async with tried(offload=bucket) as trial:
        row = await trial.owned(await trial.worker(), input=NOISE)
        row = await trial.done(going_on(row, state=NOISE))
        row = await trial.done(going_on(row, state=NOISE[1:]))
        await trial.store.prune(10**15, 0, 100)
        row = await trial.row(row.id)
        assert (row.input, row.state) == (NOISE, NOISE[1:])
        assert [len(names) for _, names in await bucket.old(b"", 9)] == [2], "the former state is gone"
        await trial.done(finished(row, state=None, result=b"1"))
        await trial.time.advance(1)
        for _ in range(2):
            await trial.store.prune(0, 0, 100)
        assert await bucket.old(b"", 9) == []


def test_a_bucket_s_grace_is_not_too_short_either() -> None:
    with pytest.raises(DefinitionError, match="Give at least"):
        Bucket(MemoryStore(), grace=60)
