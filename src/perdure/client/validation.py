"""Checks of everything that a caller gives to a client, before anything is stored; every refusal says what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from perdure import limits
from perdure.authoring.method import Method
from perdure.authoring.start import NamedWorkflow, StartOptions
from perdure.authoring.workflow import Workflow
from perdure.clock import SECOND, in_seconds, microseconds
from perdure.errors import InboxFull, InvalidInput, InvalidKey, PayloadError, ProcessNotFound, WorkflowMisuse
from perdure.kernel.context import checked
from perdure.kernel.failure import safe_text
from perdure.kernel.message import SendAnswer, SendVerdict, call_key
from perdure.kernel.names import DEBOUNCED, check_key, check_name, id_bytes, id_text, near
from perdure.kernel.notice import refuse_reserved
from perdure.kernel.payload import decode, encode, encode_attributes
from perdure.kernel.plain import shown
from perdure.kernel.process import Process
from perdure.kernel.transition import Sender
from perdure.store.base import Search
from perdure.turns.current import current_turn, turns

ProcessId = bytes | str
"""A process: its id as bytes or as text."""

_NUL = b"\\u0000"
_ROWS_AT_MOST = 100 * limits.LIST_ROWS


def outside_a_turn() -> None:
    """Raise WorkflowMisuse in workflow code: each replay would send the same request to the store again."""
    if turns and current_turn() is not None:
        raise WorkflowMisuse(
            "an engine was called from workflow code, which would call it again at every replay. Start a child with "
            "`order.child(...)`, send a signal with `tell(...)`, or call the engine in a step."
        )


def reference(process: ProcessId) -> bytes:
    """The id that names a process, as bytes; raises InvalidKey."""
    if not isinstance(process, bytes):
        return id_bytes(process)
    if len(process) != 16:
        raise InvalidKey(f"{shown(process)} is not the id of a process: an id has 16 bytes. Take it from a handle.")
    return process


def duration(given: Any, what: str) -> int:
    """A time limit in microseconds; raises InvalidInput unless it is seconds above 0, or such a timedelta."""
    seconds = in_seconds(given)
    right = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not right or not 0 < seconds <= limits.FARTHEST_SECONDS:
        most = limits.FARTHEST_SECONDS
        raise InvalidInput(
            f"{what} is {shown(given)}. Give seconds or a timedelta, more than 0 and at most {most:,.0f} s."
        )
    return microseconds(seconds)


def delay(options: StartOptions, deadline: int | None) -> int | None:
    """The delay of a start in microseconds, None if it has none; raises InvalidInput."""
    if options.delay is None:
        return None
    if options.signal is not None:
        raise InvalidInput("delay= and signal= are given together, but a signal starts the process at once. Give one.")
    wait = duration(options.delay, "the delay")
    if deadline is not None and wait >= deadline:
        raise InvalidInput(
            f"the delay of {wait / SECOND:g} s is not shorter than the deadline of {deadline / SECOND:g} s."
        )
    return wait


def version(given: Any) -> str:
    """A version of a workflow's code, empty for one that has none; raises InvalidInput or InvalidKey."""
    if not isinstance(given, str):
        raise InvalidInput(f"the version is {shown(given)}. Give a text, like '2'.")
    return check_name(given, "the version of the workflow") if given else ""


def debounce(options: StartOptions, deadline: int | None) -> tuple[int, int | None]:
    """How long a debounced start waits, and at most from the first one on, in microseconds; raises InvalidInput."""
    if options.key is None:
        raise InvalidInput("debounce= needs key=: starts with the same key are put together.")
    if options.signal is not None or options.delay is not None:
        raise InvalidInput("debounce= says when the process begins, and so do signal= and delay=. Give one of them.")
    if len(options.key.encode()) + len(DEBOUNCED) > limits.KEY_BYTES:
        most = limits.KEY_BYTES - len(DEBOUNCED)
        raise InvalidInput(f"the key of a debounced start takes at most {most} bytes. Shorten it, or use its hash.")
    wait = duration(options.debounce, "the debounce")
    longest = None if options.debounce_longest is None else duration(options.debounce_longest, "debounce_longest")
    if longest is not None and longest < wait:
        raise InvalidInput(f"debounce_longest={longest / SECOND:g} s is shorter than debounce={wait / SECOND:g} s.")
    if deadline is not None and max(wait, longest or 0) >= deadline:
        raise InvalidInput(
            f"a wait of {max(wait, longest or 0) / SECOND:g} s is not shorter than the deadline of "
            f"{deadline / SECOND:g} s."
        )
    return wait, longest


def since(given: Any, now: int) -> int | None:
    """The instant from which what is stored is wanted, in microseconds; None for ``"now"``. Raises InvalidInput."""
    if given == "now":
        return None
    if given == "beginning":
        return 0
    if not isinstance(given, datetime) or given.tzinfo is None:
        raise InvalidInput(f"since= is {shown(given)}. Give 'now', 'beginning', or a datetime with a time zone.")
    instant = microseconds(given.timestamp())
    if instant > now:
        raise InvalidInput(
            f"since= is {given.isoformat()}, which has not come yet. Give an instant in the past, or 'now'."
        )
    return max(instant, 0)


def timeout(given: Any) -> float | None:
    """How long to wait, in seconds; raises InvalidInput."""
    seconds = in_seconds(given)
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
        raise InvalidInput(
            f"the timeout is {shown(given)}. Give seconds or a timedelta, 0 or more; None waits for ever."
        )
    return min(float(seconds), limits.FARTHEST_SECONDS)


def input(workflow: Workflow[Any, Any] | NamedWorkflow, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    """The payload of a start's arguments; raises InvalidInput or PayloadError, and says where its options belong."""
    try:
        return workflow.shape.encode(args, kwargs)
    except InvalidInput as error:
        misplaced = [name for name in StartOptions.__struct_fields__ if name in kwargs]
        if not misplaced or isinstance(workflow, NamedWorkflow):
            raise
        name, given = workflow.function.__name__, ", ".join(f"{name}=..." for name in misplaced)
        raise InvalidInput(
            f"{error} Options of a start belong to the workflow: engine.start({name}.options({given}), ...)."
        ) from None


def arguments(args: Any, kwargs: Any) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Arguments by place and by name; raises InvalidInput if they are no list and no mapping."""
    if isinstance(args, str | bytes) or not isinstance(args, Sequence):
        raise InvalidInput(f"the arguments are {shown(args)}. Give a list of them, also of a single one.")
    if kwargs is not None and not (isinstance(kwargs, Mapping) and all(isinstance(name, str) for name in kwargs)):
        raise InvalidInput(f"the arguments by name are {shown(kwargs)}. Give a dict whose keys are texts.")
    return args, kwargs or {}


def fields(given: Mapping[str, Any]) -> dict[str, msgspec.Raw]:
    """New values of a machine's fields, as JSON; raises InvalidInput or PayloadError."""
    if not given:
        raise InvalidInput("no field is given. Name one and its value, like edit_fields(balance=120).")
    return {name: msgspec.Raw(encode(value, what=f"field {name!r}")) for name, value in given.items()}


def known_fields(given: Mapping[str, Any], stored: bytes) -> None:
    """Raise InvalidInput if a machine, of which only the stored fields are known here, has no field of such a name."""
    known = msgspec.json.decode(stored, type=dict[str, msgspec.Raw])
    for name in given:
        if name not in known:
            raise InvalidInput(f"the machine has no field {name!r}.{near(name, known)} Name one that it has.")


def attributes(given: Any) -> bytes | None:
    """The JSON of search attributes; raises InvalidInput."""
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise InvalidInput(f"the attributes are {shown(given)}. Give a dict of names and single values.")
    refuse_reserved(given)
    return encode_attributes(given)


def changed_attributes(given: Any) -> Mapping[str, Any]:
    """New values of search attributes, None for a name that goes; raises InvalidInput or PayloadError."""
    if not given or not isinstance(given, Mapping):
        raise InvalidInput("no attribute is given. Name one and its value, like edit_attributes({'stage': 'late'}).")
    attributes(given)
    return given


def calls(given: Any) -> list[Sequence[Any]]:
    """The arguments of many calls; raises InvalidInput, also for a text: its characters would count as arguments."""
    every: list[Sequence[Any]] = []
    for args in given:
        if isinstance(args, str | bytes) or not isinstance(args, Sequence):
            raise InvalidInput(f"the arguments of a call are {shown(args)}. Give a tuple for each call, like (1,).")
        every.append(tuple(args))
    return every


def portions(processes: Sequence[Process]) -> Iterator[Sequence[Process]]:
    """New processes in portions that leave the engine room for the records of other callers."""
    at = size = 0
    for n, process in enumerate(processes):
        size += len(process.input)
        if n > at and (n - at >= limits.WAITING_RECORDS // 2 or size > limits.WAITING_BYTES // 2):
            yield processes[at:n]
            at, size = n, len(process.input)
    yield processes[at:]


def sender(who: Any, why: Any, origin: Any) -> Sender:
    """Who asks, why and from where, safe to store and to show; raises InvalidInput if one of them is not a text."""
    for name, text in (("who", who), ("why", why), ("origin", origin)):
        if not isinstance(text, str):
            raise InvalidInput(f"{name}= is {shown(text)}. Give a text.")
    return Sender(
        safe_text(who, limits.NAME_BYTES), safe_text(why, limits.ERROR_TEXT_BYTES), safe_text(origin, limits.NAME_BYTES)
    )


def first_signal(given: Any, context: Any = None) -> tuple[str, bytes, str | None, bytes | None]:
    """The signal that comes with a start: its name, payload, key and (no) sender; raises InvalidInput."""
    if not isinstance(given, tuple) or not 2 <= len(given) <= 3:
        raise InvalidInput(f'signal= is {shown(given)}. Give name and value, ("paid", 1299), and a key as the third.')
    name, value, *key = given
    return signal(name, value, key[0] if key else None, "", "", "", context)


def signal(
    name: Any, value: object, key: Any, who: Any, why: Any, origin: Any, context: Any = None
) -> tuple[str, bytes, str | None, bytes | None]:
    """A signal's name, payload, key and sender; raises InvalidInput, InvalidKey or PayloadError."""
    check_name(name, "the signal's name")
    if key is not None:
        check_key(key, "the signal's key")
    raw = encode(value, what=f"the value of signal {name!r}")
    return name, raw, key, _sent_by(who, why, origin, context)


def call(
    name: Any, value: object, key: Any, who: Any, why: Any, origin: Any, context: Any = None
) -> tuple[str, bytes, str | None, bytes | None]:
    """A call's name, payload, key (no signal can have it) and sender; raises InvalidInput, InvalidKey, PayloadError."""
    check_name(name, "the call's name")
    raw = encode(value, what=f"the value of call {name!r}")
    return name, raw, _call_key(name, key), _sent_by(who, why, origin, context)


def _sent_by(who: Any, why: Any, origin: Any, context: Any) -> bytes | None:
    """What is stored of the sender of a message; raises InvalidInput or PayloadTooLarge."""
    text = checked(context)
    if not (who or why):
        return Sender(context=text).encode() if text else None
    return replace(sender(who, why, origin), context=text).encode()


def _call_key(name: str, key: Any) -> str | None:
    return None if key is None else call_key(name, check_key(key, "the call's key"))


def method_call(
    method: Method[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[bytes, str | None, bytes | None]:
    """The payload, key and sender of a call of a machine's method; raises InvalidInput, InvalidKey or PayloadError."""
    raw, key, asked_by = method_signal(method, args, kwargs)
    return raw, _call_key(method.name, key), asked_by


def method_signal(
    method: Method[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[bytes, str | None, bytes | None]:
    """The payload, key and sender of a signal to a machine; raises InvalidInput, InvalidKey or PayloadError."""
    options = method.settings
    if options.key is not None:
        check_key(options.key, f"the key of {method!r}")
    told = _sent_by(options.who, options.why, "client", options.context)
    return method.shape.encode(args, kwargs), options.key, told


def repair(method: Any, arguments: object) -> tuple[str, bytes]:
    """The name of a method and the payload of its call; raises InvalidInput, InvalidKey or PayloadError."""
    check_name(method, "the name of the method")
    if not isinstance(arguments, list | tuple):
        raise InvalidInput(f"the arguments of {method} are {shown(arguments)}. Give a list of them, like [500].")
    return method, encode(list(arguments), what=f"the arguments of {method}")


def rows(count: Any, what: str) -> int:
    """A number of rows; raises InvalidInput."""
    if type(count) is not int or not 0 <= count <= _ROWS_AT_MOST:
        raise InvalidInput(f"{what} is {shown(count)}. Give a whole number from 0 to {_ROWS_AT_MOST:,}.")
    return count


def search(given: Any) -> Search:
    """A search with values of the right types only; raises InvalidInput."""
    if given is None:
        return Search()
    given = _by_bytes(given)
    try:
        plain = asdict(given) if isinstance(given, Search) else given  # convert() would not check a Search
        found = msgspec.convert(plain, Search, from_attributes=True, builtin_types=(bytes,))
    except msgspec.ValidationError as error:
        raise InvalidInput(f"the search cannot be understood: {error}. Correct that field of Search(...).") from None
    rows(found.limit, "the limit of the search")
    for at in (found.created_from, found.created_to):
        if at is not None and abs(at) >= 1 << 63:
            raise InvalidInput(f"the search asks for the time {shown(at)}. Give microseconds since 1970.")
    for name, value in found.attributes:
        try:
            wanted = encode(decode(value.encode()))
        except (PayloadError, UnicodeEncodeError):
            wanted = _NUL
        if _NUL in wanted.replace(b"\\\\", b""):
            raise InvalidInput(
                f"the search wants the attribute {shown(name)} to be {shown(value)}, which is no JSON, or has a NUL. "
                "Give the JSON text of a value, like '5' or '\"red\"'."
            )
    return found


def _by_bytes(given: Any) -> Any:
    """The same search with ids as bytes, also where the caller gave them as the texts that views show."""
    if not isinstance(given, Search):
        return given
    ids: Any = given.ids
    if isinstance(ids, tuple | list) and any(isinstance(id, str) for id in ids):
        given = replace(given, ids=tuple(reference(id) for id in ids))
    before: Any = given.before_id
    return replace(given, before_id=reference(before)) if isinstance(before, str) else given


def check_sent(answer: SendAnswer) -> None:
    """Raise ProcessNotFound or InboxFull if a message was not put into the inbox of its process."""
    if answer.verdict is SendVerdict.NOT_FOUND:
        raise ProcessNotFound(f"no process has the id {id_text(answer.process)}; nothing was sent")
    check_room(answer)


def check_room(answer: SendAnswer) -> None:
    """Raise InboxFull if a message was refused because the inbox is full."""
    if answer.verdict is SendVerdict.FULL:
        raise InboxFull(
            f"the inbox of process {id_text(answer.process)} is full: {limits.INBOX_RECORDS:,} signals and calls, or "
            f"{limits.INBOX_BYTES:,} bytes of them, may wait in it until its code receives them. Nothing was sent: "
            "send it again when the process has received some, or see with `perdure show` what it waits for"
        )
