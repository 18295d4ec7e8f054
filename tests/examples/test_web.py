"""The web applications, each on a real server, beside a real worker, on one SQLite file."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.cli.terminal import Program

SERVERS = {
    "fastapi": ("uvicorn", "--port", "0", "examples.web.fastapi_app:app"),
    "flask": ("gunicorn", "--preload", "--workers", "2", "--threads", "4", "--bind", "127.0.0.1:0",
              "examples.web.flask_app:app"),
}  # fmt: skip
LIMIT = 20


class Site:
    """A web application that somebody uses."""

    def __init__(self, address: str) -> None:
        self.address = address

    def __call__(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Send a request; the answer is its status code and what it holds."""
        raw = None if body is None else json.dumps(body).encode()
        request = Request(self.address + path, raw, {"Content-Type": "application/json"}, method=method)
        try:
            answer = urlopen(request, timeout=2 * LIMIT)
        except HTTPError as error:
            answer = error
        with answer:
            return answer.status, json.loads(answer.read())


@pytest.fixture(scope="module", params=SERVERS)
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Each application in turn, and its worker."""
    folder = tmp_path_factory.mktemp(request.param)
    environment = {"PERDURE_URL": f"sqlite:///{folder}/shop.db", "XDG_RUNTIME_DIR": str(folder)}
    programs = [worker := Program(["-m", "perdure", "worker", "examples.web.orders"], environment)]
    try:
        worker.line_with(" hosts web.order")  # it has made the database, without which no server starts
        programs.append(server := Program(["-m", *SERVERS[request.param]], environment))
        address = re.search(r"http://[\d.]+:\d+", server.line_with("http://127.0.0.1:"))
        assert address is not None
        yield Site(address[0])
        server.signal(signal.SIGTERM)
        server.wait()
        assert "Traceback" not in "\n".join(server.lines)
    finally:
        for program in programs[::-1]:
            program.end()


def test_an_order_is_started_asked_after_approved_and_awaited(site: Site) -> None:
    code, started = site("POST", "/orders/A-1", {"cents": 129900})
    assert (code, started["created"]) == (201, True)
    assert site("POST", "/orders/A-1", {"cents": 129900}) == (200, {"process": started["process"], "created": False})
    assert site("GET", "/orders/A-1/result?wait=0.05") == (202, {"result": None})
    assert site("GET", "/orders/A-1")[1]["status"] == "running"
    assert site("POST", "/orders/A-1/approval", {"by": "Ada", "granted": True}) == (202, {"approval": "delivered"})
    assert site("GET", f"/orders/A-1/result?wait={LIMIT}") == (200, {"result": "receipt A-1: 1299.00"})
    assert site("GET", "/orders/A-1")[1]["status"] == "completed"
    assert site("POST", "/orders/A-1/approval", {"by": "Bob", "granted": True}) == (409, {"approval": "finished"})


def test_errors_are_told_by_code_and_sentence(site: Site) -> None:
    assert site("POST", "/orders/B-1", {"cents": 20000})[0] == 201
    assert site("POST", "/orders/B-1", {"cents": 7})[1]["error"] == "KeyConflict"
    assert site("POST", "/orders/B-1", {"cents": 7})[0] == 409
    for method, path in (("GET", "/orders/B-2"), ("GET", "/orders/B-2/result"), ("DELETE", "/orders/B-2")):
        code, said = site(method, path)
        assert (code, said["error"]) == (404, "ProcessNotFound")
        assert "perdure ps" in said["detail"]
    assert site("POST", "/orders/B%00", {"cents": 7})[0] == 422
    assert site("DELETE", "/orders/B-1") == (202, {"cancel": "delivered"})
    code, said = site("GET", f"/orders/B-1/result?wait={LIMIT}")
    assert (code, said["error"]) == (409, "ProcessCancelled")


def test_many_orders_at_once_are_all_taken_and_all_done(site: Site) -> None:
    def buy(number: int) -> tuple[int, int, Any]:
        submitted, _ = site("POST", f"/orders/C-{number}", {"cents": number})
        return submitted, *site("GET", f"/orders/C-{number}/result?wait={LIMIT}")

    with ThreadPoolExecutor(8) as threads:
        bought = list(threads.map(buy, range(100, 140)))
    assert bought == [(201, 200, {"result": f"receipt C-{n}: {n / 100:.2f}"}) for n in range(100, 140)]
