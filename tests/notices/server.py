"""An HTTP server on loopback that writes down what is posted to it, and answers as a test says."""

from __future__ import annotations

from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, NamedTuple, Self

from msgspec import json


class Posted(NamedTuple):
    """One request: where it was posted to, its headers and what it said."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def notice(self) -> dict[str, Any]:
        """The notice in its body."""
        told: dict[str, Any] = json.decode(self.body)
        return told


class Server:
    """``answers`` are the statuses of the next requests, after which all get 200; ``requests`` are those that came.

    ``answer`` gives the status for a request, if these are not to be the answers.
    """

    def __init__(self) -> None:
        self.requests: list[Posted] = []
        self.answers: deque[int] = deque()
        self.answer = self._next_answer

    def __enter__(self) -> Self:
        server = self

        class Taker(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                posted = Posted(self.path, dict(self.headers), body)
                server.requests.append(posted)
                self.send_response(server.answer(posted))
                self.send_header("Location", "/elsewhere")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Taker)
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _next_answer(self, posted: Posted) -> int:
        return self.answers.popleft() if self.answers else 200

    @property
    def url(self) -> str:
        """Where to post."""
        return f"http://127.0.0.1:{self._server.server_port}/hook?token=s3cret"

    @property
    def told(self) -> list[tuple[str, str]]:
        """The statuses that were posted, each with the key of its process."""
        return [(one.notice["key"], one.notice["status"]) for one in self.requests]


class Answering:
    """The answers of a server that does something before each."""

    def __init__(self, answer: Any) -> None:
        self.popleft = answer

    def __bool__(self) -> bool:
        return True
