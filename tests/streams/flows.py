"""What the tests of event streams run."""

from __future__ import annotations

from perdure import Retry, receive, step, workflow


@step
async def pack(article: str) -> str:
    """A step with a result."""
    return f"{article}, packed"


@workflow
async def parcel(article: str) -> str:
    """Two steps."""
    return await pack(await pack(article))


@workflow
async def letter(text: str) -> str:
    """Fails if there is nothing to say, and waits for a stamp."""
    if not text:
        raise ValueError("nothing to say")
    return text + await receive("stamp", str)


@workflow(retry=Retry(attempts=2, first=0.01))
async def stubborn() -> None:
    """Fails, and is tried again as a whole."""
    raise ValueError("never")


HOSTED = [parcel, letter, stubborn]
