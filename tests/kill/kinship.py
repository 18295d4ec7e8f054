"""Kinship: what must hold between every parent and its children, whoever was killed."""

from __future__ import annotations

from collections import Counter

from perdure.engine import Engine
from perdure.kernel.child import ANSWERS, begun
from perdure.kernel.event import EventType
from perdure.kernel.process import Process
from tests.kill.harness import laws_hold


async def families_whole(engine: Engine) -> dict[str, list[Process]]:
    """Check every process by the laws, and every parent against its children; the rows by kind.

    Each child that a history names is there, each that is there is named once, and each answers at most once.
    """
    rows = await laws_hold(engine, "press")
    named: Counter[bytes] = Counter()
    for row in rows:
        events = await engine.store.history(row.id, row.run, limit=row.events or 1)
        named.update(begun(event).id_bytes for event in events if event.type is EventType.CHILD_STARTED)
        heard = await engine.store.messages([(row.id, 0)])
        answers = Counter(message.id for message in heard if message.type in ANSWERS)
        assert not answers or max(answers.values()) == 1, "a child answers once"
        assert answers.keys() <= {one.id for one in rows if one.parent == row.id}
    assert named == Counter(row.id for row in rows if row.parent is not None), "no child twice, and none unknown"
    kinds: dict[str, list[Process]] = {}
    for row in rows:
        kinds.setdefault(row.kind, []).append(row)
    return kinds
