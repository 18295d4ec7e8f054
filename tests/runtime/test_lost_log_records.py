"""A handler of the program's that raises loses log records, and never a process."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from perdure.authoring.step import step
from perdure.authoring.workflow import workflow
from perdure.errors import ProcessBroken, ProcessFailed, StepError
from perdure.kernel.retry import Retry
from perdure.logs import logger
from tests.runtime.conftest import LIMIT, Open, until


class Raising(logging.Handler):
    """Writes to a disk that is full, and does not handle that itself."""

    def emit(self, record: logging.LogRecord) -> None:
        raise OSError(28, "No space left on device")


@pytest.fixture(autouse=True)
def _full_disk() -> Iterator[None]:
    full, log = Raising(), logging.getLogger("perdure")
    log.addHandler(full)
    yield
    log.removeHandler(full)


@step(retry=Retry.NONE)
async def fails() -> None:
    raise ValueError("no")


@step(retry=Retry(attempts=1, then=("break",)))
async def breaks() -> None:
    raise ValueError("no")


@workflow
async def goes_on() -> str:
    try:
        await fails()
    except StepError as error:
        return error.type
    return "done"


@workflow
async def ends() -> None:
    raise ValueError("no")


@workflow
async def stops() -> None:
    await breaks()


async def test_a_process_goes_on_after_a_failed_step_whose_record_is_lost(opened: Open) -> None:
    engine, _ = await opened(work=True, workflows=[goes_on])
    assert await (await engine.start(goes_on)).result(LIMIT) == "ValueError"


@pytest.mark.parametrize(("flow", "error"), [(ends, ProcessFailed), (stops, ProcessBroken)])
async def test_a_process_that_has_failed_is_let_go_although_the_record_of_that_is_lost(
    opened: Open, flow: object, error: type[Exception]
) -> None:
    engine, _ = await opened(work=True, workflows=[flow])
    with pytest.raises(error):
        await (await engine.start(flow)).result(LIMIT)  # type: ignore[call-overload]
    await until(lambda: not engine.metrics()["in_hand"])


def test_what_loses_a_record_is_shown_and_a_record_names_the_code_that_has_made_it(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO, "perdure.step")
    try:
        raise ValueError("the cause")
    except ValueError:
        logger("step").exception("it has %s", "failed", extra={"step": "charge"})
    assert "No space left on device" in capsys.readouterr().err
    logging.getLogger("perdure").handlers.clear()
    logger("step").info("told")
    assert [(record.funcName, record.getMessage()) for record in caplog.records][-1] == (
        test_what_loses_a_record_is_shown_and_a_record_names_the_code_that_has_made_it.__name__,
        "told",
    )
