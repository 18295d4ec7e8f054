"""Whether an operation that runs is going to command a process: then the operation moves it next, and no person."""

from __future__ import annotations

from msgspec import Struct, json
from msgspec.structs import replace

from perdure.authoring.operation.machine import KIND
from perdure.authoring.operation.plan import OperationPlan, Window
from perdure.client.finding.fields import Candidate
from perdure.client.finding.grammar import parsed
from perdure.client.whole_rows import whole
from perdure.errors import PerdureError
from perdure.kernel.checkpoint import has_begun
from perdure.kernel.names import id_bytes, id_text
from perdure.kernel.process import Process, Status
from perdure.kernel.stored import MALFORMED
from perdure.limits import LIST_ROWS
from perdure.store.base import Search, Store


class _UnderWay(Struct, frozen=True):
    """What the row of an operation says of what it has still to do."""

    plan: OperationPlan
    window: Window
    phase: str
    paused: str = ""
    before: str | None = None


async def commanded_by(store: Store, row: Process, now: int) -> str | None:
    """The id of an operation under way that has not come to this process yet, and whose query it fits."""
    search = Search(kind=KIND, statuses=(Status.RUNNING,), limit=LIST_ROWS)
    while True:
        page = await whole(store, await store.search(search))
        for one in page:
            if one.id != row.id and _comes_to(one, row, now):
                return id_text(one.id)
        if len(page) < LIST_ROWS:
            return None
        search = replace(search, before_id=page[-1].id)


def _comes_to(operation: Process, row: Process, now: int) -> bool:
    try:
        if not has_begun(operation.state):
            return False
        begun = json.decode(operation.state or b"{}", type=_UnderWay)
        ahead = begun.before is None or row.id < id_bytes(begun.before)
        goes_on = begun.phase in ("canary", "running", "watching the canary") and not begun.paused
        counts = begun.window.holds(row.changed_at) and not begun.plan.undoes
        return goes_on and ahead and counts and parsed(begun.plan.where).fits(Candidate(row, now))
    except (PerdureError, *MALFORMED):
        return False
