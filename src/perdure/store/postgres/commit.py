"""Commits on PostgreSQL: which function writes a batch, the usual ones at the least cost."""

from __future__ import annotations

from collections.abc import Sequence

from asyncpg import Record

from perdure.kernel.commit import Commit, CommitAnswer, Removal, Verdict
from perdure.store.postgres.connection import PostgresConnection
from perdure.store.postgres.records import (
    bringing_alone,
    bringing_records,
    commit_alone,
    commit_answers,
    commit_records,
    id_of,
    outward_alone,
    outward_records,
)


async def commit(writes: PostgresConnection, commits: Sequence[Commit]) -> list[CommitAnswer]:
    """Write commits, each accepted or refused by itself; each is answered in the order given."""
    if any(commit.starts or commit.sends or commit.removes or commit.brings for commit in commits):
        return await _unusual(writes, commits)
    if len(commits) == 1 and (alone := commit_alone(commits[0])):
        return commit_answers(commits, await writes.row("commit_alone", *alone))
    ordered = sorted(commits, key=id_of)
    answers = commit_answers(ordered, await writes.row("commit", *commit_records(ordered)))
    if len(answers) == answers.count(answers[0]):
        return answers
    by_id = {commit.after.id: answer for commit, answer in zip(ordered, answers, strict=True)}
    return [by_id[commit.after.id] for commit in commits]


async def _unusual(writes: PostgresConnection, commits: Sequence[Commit]) -> list[CommitAnswer]:
    """Write commits that do more than change their own rows; then those that remove something, one by one."""
    removing = [one for one in commits if one.removes is not None]
    if not removing:
        return await _outward(writes, commits)
    others = [one for one in commits if one.removes is None]
    answers = await commit(writes, others) if others else []
    by_id = {one.after.id: answer for one, answer in zip(others, answers, strict=True)}
    for one in removing:
        whole = one.removes is Removal.PROCESS
        found = await writes.row("commit_and_remove", *outward_records([one]), whole)
        blocked = found["blocked"] is not None
        by_id[one.after.id] = CommitAnswer(Verdict.BUSY) if blocked else commit_answers([one], found)[0]
    return [by_id[one.after.id] for one in commits]


async def _outward(writes: PostgresConnection, commits: Sequence[Commit]) -> list[CommitAnswer]:
    """Write commits that start children, send messages or bring a letter; some are answered without being written.

    BUSY are those whose targets are locked, READ_FIRST those whose letter comes too late.
    """
    answers: dict[bytes, CommitAnswer] = {}
    left = sorted(commits, key=id_of)
    while left:
        found = await _written(writes, left)
        blocked, late = found["blocked"] or (), found.get("late") or ()
        if not (blocked or late):
            written = commit_answers(left, found)
            answers |= {one.after.id: answer for one, answer in zip(left, written, strict=True)}
            break
        answers |= {left[place - 1].after.id: CommitAnswer(Verdict.BUSY) for place in blocked}
        for place, inbox in zip(late, found["inboxes"] or (), strict=True):
            answers[left[place - 1].after.id] = CommitAnswer(Verdict.READ_FIRST, inbox, found["now"])
        left = [one for one in left if one.after.id not in answers]
    return [answers[one.after.id] for one in commits]


async def _written(writes: PostgresConnection, commits: Sequence[Commit]) -> Record:
    """The answer of the function that writes this batch at the least cost."""
    alone = len(commits) == 1
    if any(commit.brings for commit in commits):
        if alone and (one := bringing_alone(commits[0])):
            return await writes.row("commit_bringing_alone", *one)
        return await writes.row("commit_bringing", *bringing_records(commits))
    if alone and (one := outward_alone(commits[0])):
        return await writes.row("commit_outward_alone", *one)
    return await writes.row("commit_outward", *outward_records(commits))
