"""Checks on demand: processes examined by the named checks, mended if ordered, by a durable process; and findings."""

from __future__ import annotations

import builtins
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct, json
from msgspec.structs import replace

from perdure.authoring.check.examination import Examined, FixWriter, fix, keep
from perdure.authoring.check.examination import examine as examined
from perdure.authoring.check.machine import KIND, CheckMachine
from perdure.authoring.check.plan import CheckPlan, CheckPortion, CheckStatus
from perdure.client import validation
from perdure.client.finding.finder import Finder
from perdure.client.finding.grammar import parsed
from perdure.client.finding.saved import expanded
from perdure.client.handle import Handle
from perdure.client.view import instant
from perdure.client.whole_rows import whole
from perdure.clock import Duration, microseconds
from perdure.errors import InvalidInput, PerdureError
from perdure.futures import asked
from perdure.kernel.audit import Audit
from perdure.kernel.check import CHECKS, Check, FixOrder, mend, named
from perdure.kernel.checkpoint import has_begun
from perdure.kernel.commit import Commit, CommitAnswer, Verdict
from perdure.kernel.diagnosis import ending
from perdure.kernel.finding import KeptFinding
from perdure.kernel.names import id_bytes, id_text
from perdure.kernel.process import Process
from perdure.limits import CHECK_ROWS, IDLE_CHECK_SECONDS
from perdure.store.base import Search

if TYPE_CHECKING:
    from perdure.client.client import Client

SAMPLES = 100
NOTHING: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckView:
    """One check: its name, what it says must hold, and what is done or can be done about a fault.

    ``mends`` says whether a run with ``fix=True`` does that by itself.
    """

    name: str
    says: str
    mends: bool
    fixes: str


@dataclass(frozen=True, slots=True)
class FindingView:
    """One fault of one process: the check that found it, what is wrong, since when, and when it was seen last.

    ``gone_at`` is when it was not there any more, None while it is; ``mended_by`` who had it mended, ``mended`` how.
    """

    check: str
    process: str
    kind: str
    text: str
    since: datetime
    seen_at: datetime
    gone_at: datetime | None
    mended_by: str
    mended: str


@dataclass(frozen=True, slots=True)
class Explained:
    """One fault as a dry run shows it: what is wrong, and what its ``fix`` would do; empty if nothing is safe."""

    check: str
    process: str
    kind: str
    text: str
    fix: str


@dataclass(frozen=True, slots=True)
class CheckPreview:
    """What a run would find now: how many processes it ``checked``, faults by check, and how many would be mended.

    ``sample`` are the first hundred.
    """

    checked: int
    found: dict[str, int]
    would_mend: dict[str, int]
    sample: list[Explained] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class AuditView:
    """How far the checks in the background are: ``checked`` processes in this round, ``found`` faults in it.

    The round began at ``begun_at``; ``rounds`` were completed, the last one at ``ended_at``. The next page is due at
    ``due_at``. None stands for what has not been yet.
    """

    checked: int
    found: int
    rounds: int
    begun_at: datetime | None
    ended_at: datetime | None
    due_at: datetime | None


class CheckRunHandle:
    """One check run: looked at, cancelled, and waited for.

    Every method raises ProcessNotFound if there is no process with its id, InvalidInput if that is no check run.
    """

    def __init__(self, client: Client, id: str) -> None:
        self._handle: Handle[Any] = client.process(id, CheckStatus)
        self._client = client
        self.id = id

    async def status(self) -> CheckStatus:
        """What has become of it until now."""
        return _status(await self._row())

    async def cancel(self, why: str = "") -> None:
        """Examine nothing more after the portion under way. Raises CallRefused or CallUnanswered if it has ended."""
        await self._row()
        await self._handle.call(CheckMachine.cancel, why)

    async def result(self, timeout: Duration | None = None) -> CheckStatus:
        """Wait for its end."""
        await self._row()
        status: CheckStatus = await self._handle.result(timeout)
        return status

    async def _row(self) -> Process:
        row = await self._client.row(self.id)
        if row.kind != KIND:
            raise InvalidInput(
                f"process {self.id} is no check run, its kind is {row.kind}; `perdure check show` lists what there is"
            )
        return row


def _told(row: Process) -> CheckStatus:
    """What can be told of a check run by its row, whatever it says."""
    try:
        return _status(row)
    except PerdureError:
        return CheckStatus("cannot be read here")


def _status(row: Process) -> CheckStatus:
    """What the row of a check run says; raises UnreadablePayload.

    One whose process was ended by a command or an error, and not by its own code, is cancelled.
    """
    said = CheckStatus("waits for a worker")
    if has_begun(row.state):
        if row.result is not None:
            return json.decode(row.result, type=CheckStatus)
        state = json.decode(row.state or b"{}", type=_State)
        said = CheckStatus(state.phase, state.checked, state.plan.total, state.found, state.mended)
    return replace(said, phase="cancelled", cancelled=f"its process {ending(row)}") if row.final else said


class _State(Struct, frozen=True):
    """The fields of a machine that runs."""

    plan: CheckPlan
    phase: str
    checked: int
    found: dict[str, int]
    mended: dict[str, int]


class Checks:
    """The verbs on checks: ``engine.checks``."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def list(self) -> builtins.list[CheckView]:
        """All checks that there are."""
        return [CheckView(one.name, one.says, one.fix is not None, one.fixes) for one in CHECKS]

    async def preview(self, *, only: Sequence[str] = NOTHING, where: str = "", kind: str = "") -> CheckPreview:
        """What a run with ``fix=True`` would find and mend now; nothing is written. Raises InvalidInput."""
        validation.outside_a_turn()
        plan = checked(CheckPlan(tuple(only), await expanded(self._client.store, where), kind))
        checks = named(plan.only)
        found: Counter[str] = Counter()
        would: Counter[str] = Counter()
        sample: builtins.list[Explained] = []
        number = 0
        async for rows in self._pages(plan, None):
            page = await examined(self._client.store, rows, checks)
            number += len(page.examined)
            order = await self._order("")
            for one in page.findings:
                record = page.records[one.subject]
                way = mend(one, record, order)
                found[one.law] += 1
                would[one.law] += way is not None
                if len(sample) < SAMPLES:
                    text = "" if way is None else way.text
                    sample.append(Explained(one.law, id_text(one.subject), record.process.kind, one.text, text))
        return CheckPreview(number, dict(found), {name: count for name, count in would.items() if count}, sample)

    async def start(
        self,
        *,
        only: Sequence[str] = NOTHING,
        where: str = "",
        kind: str = "",
        fix: bool = False,
        rate: float | None = None,
        priority: int | None = None,
        who: str = "",
        why: str = "",
        key: str | None = None,
    ) -> CheckRunHandle:
        """Examine all processes, or those of a kind or that fit a query, by all checks or the named ones.

        It is a durable process: any worker does it, and another one goes on if that dies. With ``fix`` it mends what
        can be mended safely. ``rate`` is processes a second at most. Of several runs that wait for a worker, the one
        with the lower ``priority`` (0 to 9) goes first. What it finds is kept: see :meth:`findings`. Raises
        InvalidInput.
        """
        validation.outside_a_turn()
        validation.sender(who, why, "client")
        where = await expanded(self._client.store, where)
        plan = checked(CheckPlan(tuple(only), where, kind, fix, rate, 0, who, why))
        if not where and key is None:  # under a key, a second start must say the same
            search = Search(kind=kind or None, tasks=True)
            plan = replace(plan, total=sum(number for _, _, number in await self._client.store.count(search)))
        name = key or id_text(self._client.machine.new_id())
        handle = await self._client.start(CheckMachine.made.options(key=name, priority=priority), plan)
        return CheckRunHandle(self._client, handle.id)

    def handle(self, id: str) -> CheckRunHandle:
        """The check run with this id."""
        return CheckRunHandle(self._client, id)

    async def runs(self, limit: int = 100) -> builtins.list[tuple[str, CheckStatus]]:
        """The check runs that there are, the newest first: their ids, and what has become of each."""
        validation.outside_a_turn()
        store = self._client.store
        rows = await whole(store, await store.search(validation.search(Search(kind=KIND, limit=limit))))
        return [(id_text(row.id), _told(row)) for row in rows]

    async def findings(self, *, gone: bool = False) -> builtins.list[FindingView]:
        """The faults that were found and are there still, the newest first; with ``gone`` also those that were.

        At most a thousand are kept: what a run finds beyond them, it only counts.
        """
        validation.outside_a_turn()
        rows = [row for row in await self._client.store.records(KeptFinding) if gone or row.gone_at is None]
        return [_view(row) for row in sorted(rows, key=lambda row: row.since, reverse=True)]

    async def background(self) -> AuditView:
        """How far the checks are that workers make in the background."""
        validation.outside_a_turn()
        [row] = await self._client.store.records(Audit)
        began = instant(row.begun_at or None)
        return AuditView(row.checked, row.found, row.rounds, began, instant(row.ended_at), instant(row.due_at or None))

    # -- for the run's own process -------------------------------------------------------------------------------

    async def portion(self, plan: CheckPlan, before: str | None, most: int) -> CheckPortion:
        """Examine the next processes that fit the plan, write down what was found, and mend it if the plan says so."""
        checks = named(plan.only)
        read, number, found, mended = 0, 0, Counter[str](), Counter[str]()
        last: str | None = before
        async for rows in self._pages(plan, before):
            page = await examined(self._client.store, rows, checks)
            read, number = read + len(rows), number + len(page.examined)
            found.update(one.law for one in page.findings)
            mended.update(await self._kept(page, checks, plan))
            last = id_text(rows[-1].id) if rows else last
            if read >= most:
                return CheckPortion(number, last, dict(found), dict(mended), read - number)
        return CheckPortion(number, None, dict(found), dict(mended), read - number)

    async def _kept(self, page: Examined, checks: Sequence[Check], plan: CheckPlan) -> Iterable[str]:
        order = await self._order(plan.who)
        # If we die here, or before the end, what was found is found again, but for what is mended by then.
        await keep(self._client.store, page, checks, order.now)
        if not plan.fix or not page.findings:
            return ()
        fixed = await fix(page, order, FixWriter(self._commit, self._client.parts.outgoing.sent))
        if fixed:
            await keep(self._client.store, Examined(), checks, order.now, fixed=fixed, by=plan.who or "perdure")
        return [one.law for one in fixed]

    async def _commit(self, commit: Commit) -> bool:
        answer: CommitAnswer = await asked(self._client.doors.commit, commit)
        if answer.verdict is not Verdict.APPLIED:
            return False
        if commit.after.token != commit.token:
            self._client.local.taken(commit.after.id, commit.after.token)
        return True

    async def _order(self, who: str) -> FixOrder:
        now = await self._client.store.now()
        return FixOrder(who, now, now + microseconds(IDLE_CHECK_SECONDS))

    async def _pages(self, plan: CheckPlan, before: str | None) -> AsyncIterator[Sequence[Process]]:
        """The processes that fit the plan, newest first, a page at a time."""
        search = Search(kind=plan.kind or None, tasks=True, before_id=None if before is None else id_bytes(before))
        if plan.where:
            async for page in Finder(self._client.store, search, plan.where).candidates():
                for first in range(0, len(page), CHECK_ROWS):
                    yield [one.row for one in page[first : first + CHECK_ROWS]]
            return
        while True:
            rows = await self._client.store.search(replace(search, limit=CHECK_ROWS))
            yield rows
            if len(rows) < CHECK_ROWS:
                return
            search = replace(search, before_id=rows[-1].id)


def _view(row: KeptFinding) -> FindingView:
    since, seen_at = instant(row.since), instant(row.seen_at)
    assert since is not None and seen_at is not None
    return FindingView(
        row.law, row.process, row.kind, row.text, since, seen_at, instant(row.gone_at), row.mended_by, row.mended
    )


def checked(plan: CheckPlan) -> CheckPlan:
    """The plan, if it can be carried out; raises InvalidInput."""
    named(plan.only)
    if plan.where and plan.kind:
        raise InvalidInput(f'give either a query or a kind: where="kind = {plan.kind} and …".')
    if plan.where:
        parsed(plan.where)
    if plan.rate is not None and not 0 < plan.rate < 1_000_000:
        raise InvalidInput(f"the rate {plan.rate} is not processes a second, more than 0.")
    return plan
