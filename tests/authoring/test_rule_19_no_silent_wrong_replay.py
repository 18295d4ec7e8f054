"""Rule 19: a history that does not fit the code is told with both sides; a fitting one replays exactly as it was."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import random as chance
import secrets
import subprocess
import sys
import time
import uuid as ids
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from perdure import clock
from perdure.authoring.step import step
from perdure.authoring.workflow import new_uuid, random_source, workflow
from perdure.errors import DefinitionError, HistoryMisfit
from perdure.kernel.message import MessageType
from tests.authoring.life import BIRTH, Life, deliver, lived

HERE = Path(__file__).parent
NUMBER: contextvars.ContextVar[int] = contextvars.ContextVar("number", default=0)


@step
async def charge(order: str, cents: int) -> str:
    return f"{order}:{cents}"


@step
async def ship(order: str) -> str:
    return f"shipped {order}"


@workflow(name="order")
async def charging_more() -> str:
    return await charge("A-17", 2000)


@workflow(name="order")
async def charging() -> str:
    return await charge("A-17", 1000)


@workflow(name="order")
async def shipping_first() -> str:
    await ship("A-17")
    return await charge("A-17", 1000)


def history_of(flow: Any, name: str = "charge") -> Any:
    life = Life(flow)
    return life.answer(life.ask(name))


def test_rule_19_a_result_of_a_step_asked_for_with_other_arguments_is_a_misfit_that_shows_both_sides() -> None:
    recorded = history_of(charging)
    with pytest.raises(HistoryMisfit, match=r"'charge' at place 1 for other arguments.*\[\"A-17\",2000\].*sorted"):
        deliver(Life(charging_more).loop, recorded)


def test_rule_19_a_failure_of_a_step_asked_for_with_other_arguments_is_a_misfit() -> None:
    _, place, name, digest, _ = history_of(charging)
    with pytest.raises(HistoryMisfit, match="a failure of step 'charge'"):
        Life(charging_more).loop.step_failed(place, name, digest, b'{"type":"X","message":""}')


def test_rule_19_an_unknown_digest_is_not_compared() -> None:
    life = Life(charging_more)
    life.loop.step_done("1", "charge", None, b'"r"')
    life.loop.run(BIRTH)
    assert life.loop.finished


def test_rule_19_a_result_of_a_step_that_the_code_did_not_ask_for_is_a_misfit_that_says_what_it_asked_for() -> None:
    _, place, name, digest, raw = history_of(charging)
    with pytest.raises(HistoryMisfit, match=r"a result of step 'charge' at place 1.*asked for step ship at 1"):
        Life(shipping_first).loop.step_done(place, name, digest, raw)


def test_rule_19_a_second_result_of_the_same_step_is_a_misfit() -> None:
    loop = Life(charging).loop
    loop.step_done("1", "charge", None, b'"r"')
    with pytest.raises(HistoryMisfit, match="asked for no step"):
        loop.step_done("1", "charge", None, b'"r"')


def test_rule_19_a_timer_that_the_code_did_not_set_is_a_misfit() -> None:
    with pytest.raises(HistoryMisfit, match="a timer at place 1, but the code set no timer"):
        Life(charging).loop.timer_fired("1")


def test_rule_19_a_result_that_does_not_fit_the_type_of_the_code_is_a_misfit() -> None:
    with pytest.raises(HistoryMisfit, match="cannot read it"):
        Life(charging).loop.step_done("1", "charge", None, b"[1]")


@workflow
async def first_of_two() -> list[Any]:
    pending: set[Any] = {charge("A", 1), charge("B", 2)}
    rounds = []
    while pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        rounds.append([one.result() for one in done])
    return rounds


def test_rule_19_two_results_in_one_turn_differ_from_the_same_two_in_two_turns() -> None:
    together = Life(first_of_two)
    both = [together.answer(ask) for ask in together.loop.open.values()]
    assert together.turn(*both).outcome == '[["A:1","B:2"]]'

    apart = Life(first_of_two)
    for delivery in both:
        seen = apart.turn(delivery)
    assert seen.outcome == '[["A:1"],["B:2"]]'

    for life in (together, apart):
        life.check_replays()


@workflow
async def sets_of_everything() -> list[str]:
    loop = asyncio.get_running_loop()

    async def named(number: int) -> str:
        return await charge(f"task {number}", number)

    tasks = [asyncio.create_task(named(number)) for number in range(40)]
    steps = [charge(f"step {number}", number) for number in range(40)]
    gathers = [asyncio.gather(charge(f"gather {number}", number)) for number in range(20)]
    futures = [loop.create_future() for _ in range(20)]
    for number, future in enumerate(futures):
        future.set_result(f"future {number}")
    await asyncio.gather(*tasks, *steps, *gathers)
    done, _ = await asyncio.wait([*tasks, *steps, *gathers, *futures])
    first = [str(one.result()) for one in done]
    second = [str(await one) for one in asyncio.as_completed([*gathers, *tasks, *steps])]
    third = [await one for one in asyncio.as_completed([named(number) for number in range(20)])]
    return [*first, *second, *third]


@workflow
async def sets_of_tasks() -> list[str]:
    tasks = [asyncio.create_task(asyncio.sleep(1, number)) for number in range(60)]
    done, _ = await asyncio.wait(tasks)
    return [str(task.result()) for task in done]


def test_rule_19_sets_of_tasks_and_steps_iterate_alike_in_every_life() -> None:
    assert len(lived(sets_of_everything, seeds=3)) <= 3


def test_rule_19_the_sets_of_asyncio_wait_iterate_alike_under_every_hash_seed() -> None:
    program = "from tests.authoring.test_rule_19_no_silent_wrong_replay import print_order; print_order()"
    answers = set()
    for seed in ("0", "1", "77"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, cwd=HERE.parents[1], capture_output=True, check=True
        )
        answers.add(done.stdout)
    assert len(answers) == 1
    assert b"future 0" in answers.pop()


def print_order() -> None:
    """Print what a workflow full of sets has come to, after some litter has moved every address."""
    litter = [object() for _ in range(hash("litter") % 5000)]
    life = Life(sets_of_everything)
    while not life.loop.finished:
        life.turn(*[life.answer(ask) for ask in life.loop.open.values()])
    print(life.seen[-1].outcome, litter[:0])


def test_rule_19_tasks_come_out_of_sets_in_the_order_of_their_creation() -> None:
    life = Life(sets_of_tasks)
    while not life.loop.finished:
        life.fire()
    assert life.loop.result == sorted(life.loop.result, key=int)


@workflow
async def five_timers() -> list[int]:
    fired: list[int] = []
    loop = asyncio.get_running_loop()
    for number, delay in enumerate([2.0, 1.0, 2.0, 1.0, 2.0]):
        loop.call_later(delay, fired.append, number)
    await asyncio.sleep(3)
    return fired


def test_rule_19_timers_due_at_the_same_instant_fire_in_the_order_of_their_creation() -> None:
    life = Life(five_timers)
    due = life.loop.due_timers(BIRTH + 3_000_000)
    assert [place for _, place in due] == ["2", "4", "1", "3", "5", "6"]
    assert life.turn(*[("timer", place) for _, place in due], after=3).outcome == "[1,3,0,2,4]"


@workflow
async def reading_the_machine() -> list[Any]:
    await charge("A", 1)
    return [
        time.time(),
        time.time_ns(),
        time.monotonic(),
        time.perf_counter_ns(),
        time.gmtime()[:6],
        time.strftime("%Y", time.gmtime()),
        chance.random(),
        chance.randint(1, 10**12),
        chance.sample(range(100), 5),
        chance.Random().random(),
        chance.SystemRandom().random(),
        os.urandom(8).hex(),
        secrets.token_hex(8),
        secrets.randbelow(10**9),
        str(ids.uuid4()),
        asyncio.current_task().get_name() if asyncio.current_task() else "",
        asyncio.create_task(ship("x")).done(),
        asyncio.create_task(asyncio.sleep(0)).get_name(),
    ]


def test_rule_19_the_clock_and_chance_are_answered_by_the_turns_own_time_and_seed() -> None:
    life = Life(reading_the_machine)
    seen = life.finish_step("charge", after=5)
    assert seen.outcome is not None
    assert seen.outcome.startswith(f"[{(BIRTH + 5_000_000) / 1e6:.1f},{BIRTH * 1000 + 5_000_000_000},")
    life.check_replays()


def test_rule_19_outside_of_a_turn_the_clock_and_chance_are_the_machines() -> None:
    Life(reading_the_machine)
    assert abs(time.time() * 1e9 - time.time_ns()) < 1e9
    assert time.monotonic() < BIRTH / 1e6
    assert ids.uuid4() != ids.uuid4()


class Sampling(logging.Filter):
    """Lets every second record through, by chance, and draws in each other way that there is."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.id = f"{ids.uuid4()} {secrets.token_hex(8)} {chance.Random().random()}"
        return chance.random() < 0.5 or os.urandom(1) < b"\x80"


class Drawing:
    """A value whose text has a number of its own."""

    def __str__(self) -> str:
        return str(chance.random())


@workflow
async def drawing_beside() -> list[Any]:
    logging.getLogger("lottery").warning("drawn")
    print(Drawing())
    await charge("A", 1)
    logging.getLogger("lottery").warning("charged")
    return [random_source().random(), str(ids.uuid4()), chance.randint(1, 10**9)]


def test_rule_19_what_logging_and_printing_draw_is_not_drawn_from_the_process() -> None:
    plain = Life(drawing_beside)
    log, sampling = logging.getLogger("lottery"), Sampling()
    log.addFilter(sampling)
    try:
        life = Life(drawing_beside)
        assert life.finish_step("charge").outcome == plain.finish_step("charge").outcome
        life.check_replays()
    finally:
        log.removeFilter(sampling)


def test_rule_19_what_a_module_draws_as_it_is_imported_is_not_drawn_from_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "late_module.py").write_text("import random, uuid\nID = uuid.uuid4()\nNUMBER = random.random()\n")
    monkeypatch.syspath_prepend(tmp_path)

    @workflow
    async def importing() -> list[float]:
        import late_module  # type: ignore[import-not-found]

        await charge("A", 1)
        return [random_source().random(), late_module.NUMBER * 0]

    try:
        life = Life(importing)
        assert "late_module" in sys.modules
        life.finish_step("charge")
        life.check_replays()
    finally:
        sys.modules.pop("late_module", None)


@workflow
async def ending_with_an_id() -> None:
    try:
        await charge("A", 1)
    finally:
        new_uuid()


def test_rule_19_an_id_that_an_evicted_process_makes_is_drawn_from_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[list[int]] = []
    for _ in range(2):
        monkeypatch.setattr(clock, "_chance", [])
        life = Life(ending_with_an_id)
        life.loop.evict()
        drawn.append(clock._chance)
    assert drawn[0] and drawn[0] != drawn[1]


async def stamp() -> str:
    return datetime.now().isoformat()  # noqa: DTZ005


def test_rule_19_datetime_now_is_refused_when_the_workflow_is_defined() -> None:
    with pytest.raises(DefinitionError, match=r"stamp.*uses datetime.now\(\)"):

        @workflow
        async def stamping() -> str:
            return await stamp()


@workflow
async def reading_a_context() -> int:
    await ship("x")
    return NUMBER.get()


def test_rule_19_context_variables_of_the_worker_do_not_reach_the_workflow() -> None:
    NUMBER.set(7)
    assert Life(reading_a_context).finish_step("ship").outcome == "0"


@workflow
async def hearing_twice() -> int:
    return 1


def test_rule_19_a_message_after_the_end_changes_nothing() -> None:
    life = Life(hearing_twice)
    life.loop.message(MessageType.SIGNAL, "late", b"1")
    life.loop.message(MessageType.CANCEL, "", b"null")
    life.loop.run(BIRTH)
    assert (life.loop.finished, life.loop.cancelled, life.loop.result) == (True, False, 1)
