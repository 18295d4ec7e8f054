"""Every field that workflow code can reach, given one hostile string: what each made of it, as the process's result."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from perdure import publish, set_attributes, set_state, tell
from perdure.authoring.attempt import attempt
from perdure.authoring.step import Step, step
from perdure.authoring.workflow import Workflow, process_id, receive, workflow
from perdure.errors import DefinitionError, PayloadError, StepError
from perdure.kernel.failure import safe_text
from perdure.kernel.retry import Retry
from perdure.limits import ERROR_TEXT_BYTES, NAME_BYTES
from perdure.turns.patches import patched
from tests.input.hostile import STRINGS

KEPT = "kept"
"""What is said of a field that took the string and gave it back as it was."""


def told(error: BaseException) -> str:
    """An error as it is compared between stores."""
    return f"{type(error).__name__}: {error}"


# -- steps -----------------------------------------------------------------------------------------------------------


@step(retry=Retry.NONE)
async def echo(text: str) -> str:
    return text


@step(retry=Retry.NONE)
async def give(number: int) -> str:
    return STRINGS[number]


@step(retry=Retry.NONE)
async def cry(number: int) -> None:
    raise RuntimeError(STRINGS[number])


@step(retry=Retry.NONE)
async def cry_out(number: int) -> None:
    kind = type(safe_text(STRINGS[number], 10_000), (Exception,), {})  # Python itself refuses NUL and half letters
    raise kind("of that class")


@step(retry=Retry.NONE)
async def beat_and_show(number: int) -> str:
    try:
        attempt().heartbeat(STRINGS[number])
        attempt().publish("beaten", STRINGS[number])
    except PayloadError as error:
        return told(error)
    return KEPT


@step(queue="hostile")
async def wait(text: str) -> str:
    return text


async def _named() -> str:
    return attempt().step


def _steps() -> Mapping[str, Step[[], str] | DefinitionError]:
    """One step under each string as its name, or why there can be none."""
    made: dict[str, Any] = {}
    for text in STRINGS:
        try:
            made[text] = step(name=text, retry=Retry.NONE)(_named)
        except DefinitionError as error:
            made[text] = error
    return made


_STEPS = _steps()

# -- fields ----------------------------------------------------------------------------------------------------------


def _was(text: str, back: object) -> str:
    return KEPT if back == text else f"came back as {back!r}"


async def _argument(number: int, text: str) -> str:
    return _was(text, await echo(text))


async def _step_result(number: int, text: str) -> str:
    try:
        return _was(text, await give(number))
    except StepError as error:
        return f"{error.type}: {getattr(error.failure, 'message', None)}"


async def _step_name(number: int, text: str) -> str:
    named = _STEPS[text]
    return told(named) if isinstance(named, DefinitionError) else _was(text, await named())


async def _step_error(number: int, text: str) -> str:
    try:
        await cry(number)
    except StepError as error:
        return _was(safe_text(text, ERROR_TEXT_BYTES), getattr(error.failure, "message", None))
    return "never raised"


async def _step_error_class(number: int, text: str) -> str:
    try:
        await cry_out(number)
    except StepError as error:
        return _was(safe_text(safe_text(text, 10_000), NAME_BYTES), error.type)
    return "never raised"


async def _progress(number: int, text: str) -> str:
    return await beat_and_show(number)


async def _state(number: int, text: str) -> str:
    set_state(text)
    return KEPT


async def _published_name(number: int, text: str) -> str:
    publish(text, number)
    return KEPT


async def _published_value(number: int, text: str) -> str:
    publish("value", text)
    return KEPT


async def _attribute_name(number: int, text: str) -> str:
    set_attributes({text: number})
    return KEPT


async def _attribute_value(number: int, text: str) -> str:
    set_attributes(value=text)
    return KEPT


async def _patch(number: int, text: str) -> str:
    return KEPT if patched(text) else "not taken"


async def _signal_told(number: int, text: str) -> str:
    tell(process_id(), text, text, key=f"{number}")
    return _was(text, await receive(text, str))


async def _signal_told_key(number: int, text: str) -> str:
    tell(process_id(), "keyed", text, key=text)
    return _was(text, await receive("keyed", str))


async def _queue_label_share(number: int, text: str) -> str:
    for name in ("queue", "label", "share"):
        wait.options(**{name: text})  # type: ignore[arg-type]
    waiting = asyncio.ensure_future(wait.options(queue=text, label=text, share=text)(text))
    await echo("meanwhile it is started")
    waiting.cancel()  # nobody serves that queue: its row is looked at from outside
    return KEPT


FIELDS: Mapping[str, Callable[[int, str], Awaitable[str]]] = {
    "step argument": _argument,
    "step result": _step_result,
    "step name": _step_name,
    "step error": _step_error,
    "step error class": _step_error_class,
    "progress": _progress,
    "state": _state,
    "published name": _published_name,
    "published value": _published_value,
    "attribute name": _attribute_name,
    "attribute value": _attribute_value,
    "patch name": _patch,
    "signal told": _signal_told,
    "signal told key": _signal_told_key,
    "queue, label and share": _queue_label_share,
}


@workflow(name="hostile/within")
async def within(number: int) -> dict[str, str]:
    """Give every field the string of that number; what each says."""
    uses = (use(number, STRINGS[number]) for use in FIELDS.values())
    answers = await asyncio.gather(*uses, return_exceptions=True)
    return {
        name: told(answer) if isinstance(answer, BaseException) else answer
        for name, answer in zip(FIELDS, answers, strict=True)
    }


@workflow(name="hostile/hear")
async def hear(text: str) -> list[str]:
    """Take the string as argument, and as name and value of a signal."""
    return [text, await receive(text, str)]


@workflow(name="hostile/give_back")
async def give_back(number: int) -> str:
    return STRINGS[number]


@workflow(name="hostile/fail")
async def fail(number: int) -> None:
    raise RuntimeError(STRINGS[number])


async def _of_any_kind(text: str) -> str:
    return text


def kinds() -> Mapping[str, Workflow[[str], str] | DefinitionError]:
    """One workflow under each string as its name, and with it as its version, or why there can be none."""
    made: dict[str, Any] = {}
    for text in STRINGS:
        try:
            made[text] = workflow(name=text, version=text)(_of_any_kind)
        except DefinitionError as error:
            made[text] = error
    return made
