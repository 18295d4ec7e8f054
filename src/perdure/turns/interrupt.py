"""An interrupt: whether a KeyboardInterrupt is a real Ctrl-C, or an error that code has raised like any other."""

from __future__ import annotations

from functools import partial
from opcode import opmap
from signal import SIGINT, getsignal
from threading import current_thread, main_thread
from typing import Any

_RAISE = opmap["RAISE_VARARGS"]


def pressed(error: BaseException) -> bool:
    """Whether it is a real Ctrl-C, which is meant for this program and not for the process whose code was running.

    A Ctrl-C raises in the main thread, between any two instructions or in the program's own handler. If the handler
    does not raise, as in `perdure worker`, no KeyboardInterrupt is real.
    """
    handler: Any = getsignal(SIGINT)
    if not isinstance(error, KeyboardInterrupt) or not callable(handler) or current_thread() is not main_thread():
        return False
    trace = error.__traceback__
    if trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    if code is _code(handler):
        return True
    return code.co_code[trace.tb_lasti] != _RAISE


def _code(handler: Any) -> Any:
    while isinstance(handler, partial):
        handler = handler.func
    return getattr(getattr(handler, "__func__", handler), "__code__", None)
