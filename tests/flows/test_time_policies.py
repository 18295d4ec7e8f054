"""Policies by name for what a flow waits for: the times of its states, of stretches, and of a flow that it calls."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from perdure import Policy, Status, WorkerOptions, flow, step, testing
from perdure.authoring.step_policies import StepPolicies
from perdure.errors import DefinitionError
from perdure.kernel.policy import Policies
from tests.flows.test_parts import Visa
from tests.flows.transfer import done, gates, position, sent, waits
from tests.runtime.conftest import LIMIT, Open, lose, until, until_row


@step
async def stamped() -> None:
    """A step that is called as a state is."""


class Parcel(flow.Flow):
    """A parcel that stands somewhere for a time, and is on its way for a time."""

    shelf = flow.State(timeout=500)
    road = flow.State(timeout=500)
    stamped = flow.State(timeout=500)
    attic = flow.State()
    home = flow.State(terminal=True)
    late = flow.State(terminal=True)
    lost = flow.State(terminal=True)

    delivery = flow.Stretch(road, home, timeout=900)

    @flow.init
    def packed(self) -> None:
        pass

    @flow.event
    def fetched(self) -> None:
        pass

    @flow.event
    def dropped(self) -> None:
        pass

    @flow.event
    def kept(self) -> None:
        pass

    behaviour = flow.table(
        flow.on(packed).to(shelf),
        flow.on(fetched, in_=shelf).to(road),
        flow.on(dropped, in_=road).to(shelf),
        flow.on(kept, in_=shelf).to(attic),
        flow.on(kept, in_=road).to(stamped),
        flow.on(kept, in_=attic).to(home),
        flow.any_of(shelf.timed_out, road.timed_out, stamped.timed_out).to(lost),
        flow.on(delivery.timed_out).to(late),
    )


def limit(keys: dict[str, Policy], state: flow.State = Parcel.shelf) -> float | None:
    """For how long a parcel may be in a state, under these policies."""
    policies = StepPolicies(Policies([("a file", keys)]))
    policies.check()
    return policies.limit("Parcel", state.name, state)


async def test_the_time_of_a_state_and_of_a_stretch_is_set_by_a_key_that_names_it() -> None:
    keys = {
        "Parcel.*.shelf": Policy(timeout=50),
        "Parcel.road.delivery": Policy(timeout=70),
        "*.*.*": Policy(timeout=5),
    }
    async with testing.engine(policies=keys) as engine:
        stays = await engine.start(Parcel.packed)
        goes = await engine.start(Parcel.packed)
        assert await goes.call(Parcel.fetched) == "road"
        await engine.sleep(51)
        assert await stays.result() == "lost"
        assert (await goes.status()).attributes["state"] == "road", "a star stands for what is done there"
        await engine.sleep(21)
        assert await goes.result() == "late"


def test_the_key_that_names_most_counts_and_a_star_in_its_last_place_never() -> None:
    keys = {
        "Parcel.shelf.shelf": Policy(timeout=1), "Parcel.*.shelf": Policy(timeout=2),
        "*.shelf.shelf": Policy(timeout=3), "*.*.shelf": Policy(timeout=4),
    }  # fmt: skip
    for number, key in enumerate(list(keys), start=1):
        assert limit(keys) == number
        del keys[key]
    assert limit({"Parcel.shelf.*": Policy(timeout=9), "*.*.*": Policy(timeout=9)}) == 500


def test_a_name_that_a_step_has_too_means_the_step() -> None:
    assert limit({"Parcel.*.stamped": Policy(timeout=3, attempts=2)}, Parcel.stamped) == 500


@pytest.mark.parametrize(
    ("key", "policy", "says"),
    [
        ("Parcel.*.attic", Policy(timeout=5), "and the state Parcel.attic has none. Write flow.State(timeout=...)"),
        ("Parcel.*.shelf", Policy(attempts=5), "sets attempts, and Parcel.shelf is a state: it has a timeout alone"),
        ("Parcel.*.delivery", Policy(at_most_once=True), "Parcel.delivery is a stretch: it has a timeout alone"),
        ("Parcel.shelf.delivery", Policy(timeout=5), "Did you mean"),
        ("Parcel.*.shefl", Policy(timeout=5), "Did you mean 'Parcel.*.shelf'"),
    ],
)
def test_what_a_state_or_a_stretch_cannot_have_is_refused_when_a_worker_starts(
    key: str, policy: Policy, says: str
) -> None:
    with pytest.raises(DefinitionError, match=re.escape(says)):
        limit({key: policy})


async def test_a_policy_that_changes_while_a_flow_waits_counts_for_the_next_time_that_it_waits(tmp_path: Path) -> None:
    slow = {"Parcel.*.shelf": Policy(timeout=300), "Parcel.*.delivery": Policy(timeout=800)}
    async with testing.engine(policies=slow, folder=tmp_path) as engine:
        handle = await engine.start(Parcel.packed)
        before = (await position(handle))["due"]
        later = engine.now()
    quick = {"Parcel.*.shelf": Policy(timeout=20), "Parcel.*.delivery": Policy(timeout=90)}
    async with testing.engine(policies=quick, folder=tmp_path, begins=later) as engine:
        handle = engine.process(handle.id)
        await engine.sleep(200)
        assert (await position(handle))["due"] == before
        await handle.call(Parcel.fetched)
        assert await handle.call(Parcel.dropped) == "shelf"
        await engine.sleep(21)
        assert await handle.result() == "lost"


async def test_the_time_of_a_flow_that_is_called_is_set_by_the_name_of_the_call(tmp_path: Path) -> None:
    async with testing.engine(policies={"Visa.banking.call_account": Policy(timeout=5)}) as engine:
        visa = await engine.start(Visa.applied, "Ann")
        await engine.sleep(0.001)
        await visa.signal(Visa.answer, sent[0][1], "OK")
        await engine.sleep(6)
        assert await visa.result() == ""
        account = engine.process(flow.process_of(sent[1][1]))
        assert (await account.status()).status is Status.CANCELLED


class Ascent(flow.Flow):
    """Three actions in one state that has a time."""

    going = flow.State(timeout=300)
    gone = flow.State(terminal=True)
    late = flow.State(terminal=True)

    @flow.init
    def begun(self) -> None:
        pass

    @flow.event
    def arrived(self) -> None:
        pass

    @flow.action
    async def first(self) -> None:
        await waits("first")

    @flow.action
    async def second(self) -> None:
        await waits("second")

    @flow.action
    async def third(self) -> flow.Happened:
        await waits("third")
        return self.arrived()

    behaviour = flow.table(
        flow.on(begun).to(going).do(first, second, third),
        flow.on(arrived, in_=going).to(gone),
        flow.on(going.timed_out, in_=going).to(late),
    )


async def test_a_reaction_under_way_goes_on_elsewhere_though_a_policy_there_says_that_its_state_s_time_is_over(
    opened: Open,
) -> None:
    gates["first"].set()
    gates["second"].set()
    first, store = await opened(work=True, workflows=[Ascent.begun])
    handle = await first.start(Ascent.begun)
    await until(lambda: done["began third"])
    await lose(first, store)
    options = WorkerOptions(policies={"Ascent.*.going": Policy(timeout=0.000_001)})
    second, _ = await opened(work=True, workflows=[Ascent.begun], options=options)
    row = await until_row(second, handle.id, lambda row: row.status is not Status.RUNNING)
    assert row.status is Status.COMPLETED, row.error
    assert await second.process(handle.id).result(LIMIT) == "late"
    assert (done["began first"], done["began second"], done["third"]) == (1, 1, 0)
