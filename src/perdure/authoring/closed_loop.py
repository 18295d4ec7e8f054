"""A closed loop: an event loop without an outside; whatever would reach beyond the turn is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Never

from perdure.errors import WorkflowMisuse

OUTSIDE = (
    "add_reader", "add_signal_handler", "add_writer", "call_soon_threadsafe", "close", "connect_accepted_socket",
    "connect_read_pipe", "connect_write_pipe", "create_connection", "create_datagram_endpoint", "create_server",
    "create_unix_connection", "create_unix_server", "getaddrinfo", "getnameinfo", "remove_reader",
    "remove_signal_handler", "remove_writer", "run_forever", "run_in_executor", "run_until_complete", "sendfile",
    "set_default_executor", "set_exception_handler", "shutdown_asyncgens", "shutdown_default_executor", "sock_accept",
    "sock_connect", "sock_recv", "sock_recv_into", "sock_recvfrom", "sock_recvfrom_into", "sock_sendall",
    "sock_sendfile", "sock_sendto", "start_tls", "stop", "subprocess_exec", "subprocess_shell",
)  # fmt: skip
"""What other event loops offer and a turn refuses."""


def _refusal(name: str) -> Callable[..., Never]:
    def refuse(self: Any, *args: Any, **kwargs: Any) -> Never:
        raise WorkflowMisuse(
            f"workflow code called {name}() of the event loop: I/O, threads and the outer loop belong in a step. "
            "Move this into a function marked @step."
        )

    refuse.__name__ = name
    refuse.__doc__ = "Refused: this belongs in a step."
    return refuse


if TYPE_CHECKING:
    _Base = object
else:
    _Base = asyncio.AbstractEventLoop


class ClosedLoop(_Base):
    """An event loop that refuses everything; the turn loop adds what a turn may do."""


for _name in OUTSIDE:
    setattr(ClosedLoop, _name, _refusal(_name))
