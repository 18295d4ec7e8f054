"""Policies by flow, state and action: what they set for requests, actions and the steps of these."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from perdure import Policy, Retry, Status, WorkerOptions, flow, step, testing
from perdure.authoring.step_policies import StepPolicies
from perdure.errors import DefinitionError
from perdure.kernel.policy import Policies
from tests.flows.test_requests import resent
from tests.flows.transfer import ask, asked, done, gates, position, sent, waits
from tests.runtime.conftest import LIMIT, Open, lose, until, until_row


@step
async def book(name: str) -> str:
    """Write something down."""
    done[f"tried {name}"] += 1
    raise ConnectionError("no books")


class Query(flow.Flow):
    """It asks in two states, and then does something by itself."""

    asking = flow.State()
    waiting = flow.State()
    doing = flow.State(timeout=1000)
    booked = flow.State(terminal=True)
    late = flow.State(terminal=True)

    @flow.init
    def begun(self) -> None:
        pass

    @flow.event
    def seen(self) -> None:
        pass

    @flow.event
    def replied(self) -> None:
        pass

    @flow.event
    def written(self) -> None:
        pass

    @flow.event
    def missed(self) -> None:
        pass

    @flow.request(timeout=500, answers={"SEEN": flow.interim(seen)}, default=replied)
    async def inquire(self, id: str) -> None:
        await ask("clerk", id)

    @flow.action(timeout=300)
    async def look(self) -> flow.Happened:
        await waits("look")
        return self.written()

    @flow.action(errors={ConnectionError: missed, Exception: missed})
    async def book(self) -> flow.Happened | None:
        await book("the query")
        return None

    behaviour = flow.table(
        flow.on(begun).to(asking).do(inquire),
        flow.on(seen, in_=asking).to(waiting).do(inquire),
        flow.on(seen, in_=waiting),
        flow.on(replied).to(doing).do(look),
        flow.on(written, in_=doing).to(doing).do(book),
        flow.on(missed, in_=doing).to(booked),
        flow.any_of(inquire.timed_out, look.timed_out, doing.timed_out).to(late),
    )


KEYS = [
    "Query.asking.inquire", "Query.asking.*", "Query.*.inquire", "*.asking.inquire", "Query.*.*", "*.asking.*",
    "*.*.inquire", "*.*.*",
]  # fmt: skip
"""All shapes of a key, the one that counts most first."""


def set_for(
    keys: Mapping[str, Any], request: flow.FlowRequest = Query.inquire, state: str = "asking"
) -> flow.FlowRequest:
    """A request as a worker with these policies makes it in that state."""
    policies = StepPolicies(Policies([("a file", keys)]))
    policies.check()
    found = policies.of_action("Query", state, request)
    return request.by_policy({name: one.value for name, one in found.items()})


@pytest.mark.parametrize("counts", range(8))
def test_each_of_the_eight_shapes_of_a_key_counts_in_its_order(counts: int) -> None:
    keys = {key: Policy(attempts=2 + number) for number, key in enumerate(KEYS) if number >= counts}
    assert set_for(keys).retry.attempts == 2 + counts
    others = {"Query.waiting.inquire": Policy(attempts=50), "Query.doing.*": Policy(attempts=51)}
    assert set_for(keys | others).retry.attempts == 2 + counts


def test_each_property_comes_from_its_own_key_and_the_rest_is_as_the_library_has_it() -> None:
    keys = {
        "*.*.inquire": Policy(timeout=10, attempts=9),
        "Query.asking.inquire": Policy(first=3, attempts=3, offsets=True),
        "*.*.*": Policy(timeout=99, cap=40),
    }
    found = set_for(keys)
    assert found.timeout == 10, "the definition has a timeout, and a key that names no action leaves it"
    wanted = Retry(attempts=3, first=3, offsets=True, cap=40)
    assert found.retry == wanted, "jitter is 0.2 since nobody says otherwise"
    assert set_for({"*.*.*": Policy(timeout=99)}).timeout == 500


def test_what_a_row_sets_for_its_state_gives_way_only_to_a_key_that_names_flow_and_request() -> None:
    here = Query.inquire.options(retry=Retry(attempts=4), timeout=20)
    assert set_for({"*.*.inquire": Policy(attempts=7, timeout=5)}, here).retry.attempts == 4
    found = set_for({"Query.*.inquire": Policy(attempts=7, timeout=5)}, here)
    assert (found.retry.attempts, found.timeout) == (7, 5)


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("Query.asknig.inquire", "Did you mean 'Query.asking.inquire'"),
        ("Query.asking.inqire", "Did you mean 'Query.asking.inquire'"),
        ("Query.doing.inquire", "Did you mean"),
        ("Qery.asking.*", "Did you mean 'Query.asking.*'"),
        ("*.nowhere.*", "names no workflow and step"),
        ("Query.asking", "names no workflow and step"),
    ],
)
def test_a_key_that_names_no_flow_state_and_action_is_refused_when_a_worker_starts(key: str, says: str) -> None:
    with pytest.raises(DefinitionError, match=re.escape(says)):
        set_for({key: Policy(attempts=2)})
    for right in (
        "Query.*.look",
        "*.doing.*",
        "*.doing.look",
        "Query.asking.ask",
        "*.*.waits",
        "Query.waiting.inquire",
    ):
        set_for({right: Policy(attempts=2)})


def test_a_timeout_for_an_action_whose_table_expects_none_is_refused_if_the_key_names_it() -> None:
    class Quick(flow.Flow):
        going = flow.State()
        gone = flow.State(terminal=True)

        @flow.init
        def begun(self) -> None:
            pass

        @flow.event
        def went(self) -> None:
            pass

        @flow.action
        async def hurry(self) -> flow.Happened:
            return self.went()

        behaviour = flow.table(flow.on(begun).to(going).do(hurry), flow.on(went, in_=going).to(gone))

    with pytest.raises(
        DefinitionError, match=r"'Quick\.\*\.hurry' of a file sets a timeout, and Quick\.hurry has none"
    ):
        set_for({"Quick.*.hurry": Policy(timeout=5)})
    set_for({"Quick.*.*": Policy(timeout=5)})
    assert Quick.hurry.by_policy({"timeout": 5.0}).timeout is None


@pytest.mark.long
async def test_no_retries_in_the_first_state_and_20_and_40_seconds_in_the_second_by_policy() -> None:
    keys = {"Query.asking.*": Policy(attempts=1), "Query.waiting.inquire": Policy(backoffs=[20, 40], jitter=0)}
    async with testing.engine(policies=keys) as engine:
        handle = await engine.start(Query.begun)
        await engine.sleep(80)
        assert len(sent) == 1
        assert await handle.call(Query.answer, await asked(handle, "inquire"), "SEEN") == "waiting"
        assert await resent(engine, 100) == pytest.approx([20, 60], abs=8)


async def test_a_policy_that_changes_while_a_request_waits_counts_from_the_next_time_it_is_sent(tmp_path: Path) -> None:
    slow = {"Query.asking.inquire": Policy(backoffs=[50, 50, 50], jitter=0, timeout=400)}
    async with testing.engine(policies=slow, folder=tmp_path) as engine:
        handle = await engine.start(Query.begun)
        await engine.sleep(1)
        before = (await position(handle))["requests"][0]
        later = engine.now()
    quick = {"Query.asking.inquire": Policy(backoffs=[50, 5, 5], jitter=0, timeout=60)}
    async with testing.engine(policies=quick, folder=tmp_path, begins=later) as engine:
        handle = engine.process(handle.id)
        await engine.sleep(1)
        after = (await position(handle))["requests"][0]
        assert after == before, "what is planned stays: when it is sent next, and when it is given up"
        assert await resent(engine, 70) == pytest.approx([48, 53, 58], abs=3)
        assert (await position(handle))["requests"][0]["until"] == before["until"]


async def test_a_timeout_of_an_action_and_the_steps_of_a_state_are_set_by_policy(opened: Open) -> None:
    keys = {"Query.doing.look": Policy(timeout=0.05), "Query.doing.*": Policy(attempts=2, first=0)}
    engine, _ = await opened(work=True, options=WorkerOptions(policies=keys))
    handle = await engine.start(Query.begun)
    await handle.signal(Query.replied)
    assert await handle.result(LIMIT) == "late"
    assert done["look"] == 0
    gates["look"].set()
    await engine.close(0)  # else it may take the next one, too
    engine, _ = await opened(work=True, options=WorkerOptions(policies={"Query.doing.*": keys["Query.doing.*"]}))
    handle = await engine.start(Query.begun)
    await handle.signal(Query.replied)
    assert await handle.result(LIMIT) == "booked"
    assert done["tried the query"] == 2


@pytest.mark.parametrize("key", ["Errand.*.walk", "Errand.going.*"])
async def test_the_steps_of_an_action_or_a_state_keep_their_arguments_by_policy(opened: Open, key: str) -> None:
    class Errand(flow.Flow):
        going = flow.State()
        gone = flow.State(terminal=True)

        @flow.init
        def begun(self) -> None:
            pass

        @flow.event
        def went(self) -> None:
            pass

        @flow.action
        async def walk(self) -> flow.Happened:
            await waits("walk")
            return self.went()

        behaviour = flow.table(flow.on(begun).to(going).do(walk), flow.on(went, in_=going).to(gone))

    options = WorkerOptions(policies={key: Policy(keep_arguments=True)})
    engine, _ = await opened(work=True, workflows=[Errand.begun], options=options)
    handle = await engine.start(Errand.begun)
    gates["walk"].set()
    await until_row(engine, handle.id, lambda row: row.final)
    assert [(one.name, one.arguments) for one in await handle.trace()] == [("waits", ["walk"])]


async def test_a_key_that_names_an_action_is_not_for_a_step_that_has_its_name(opened: Open) -> None:
    gates["look"].set()
    keys = {"Query.*.book": Policy(attempts=7), "Query.doing.*": Policy(attempts=2, first=0)}
    engine, _ = await opened(work=True, options=WorkerOptions(policies=keys))
    handle = await engine.start(Query.begun)
    await handle.signal(Query.replied)
    assert await handle.result(LIMIT) == "booked"
    assert done["tried the query"] == 2


async def test_a_reaction_under_way_goes_on_elsewhere_whatever_the_policies_there_say(opened: Open) -> None:
    class Course(flow.Flow):
        """A request, two actions after it, and times that policies change."""

        going = flow.State()
        gone = flow.State(terminal=True)

        @flow.init
        def begun(self) -> None:
            pass

        @flow.event
        def arrived(self) -> None:
            pass

        @flow.request(timeout=500, default=arrived)
        async def call(self, id: str) -> None:
            await ask("clerk", id)

        @flow.action(timeout=300)
        async def first(self) -> None:
            await waits("first")

        @flow.action(timeout=300)
        async def second(self) -> flow.Happened:
            await waits("second")
            return self.arrived()

        behaviour = flow.table(
            flow.on(begun).to(going).do(call, first, second),
            flow.on(arrived, in_=going).to(gone),
            flow.any_of(call.timed_out, first.timed_out, second.timed_out).to(gone),
        )

    gates["first"].set()
    first, store = await opened(work=True, workflows=[Course.begun])
    handle = await first.start(Course.begun)
    await until(lambda: done["began second"])
    await lose(first, store)
    keys = {"Course.*.call": Policy(timeout=0.000_001), "Course.*.first": Policy(timeout=0.000_001)}
    gates["second"].set()
    second, _ = await opened(work=True, workflows=[Course.begun], options=WorkerOptions(policies=keys))
    row = await until_row(second, handle.id, lambda row: row.status is not Status.RUNNING)
    assert row.status is Status.COMPLETED, row.error
    assert (done["began first"], done["first"], done["second"]) == (1, 1, 1)
