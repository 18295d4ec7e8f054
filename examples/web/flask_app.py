"""Orders over HTTP with Flask, through the blocking engine; beside ``perdure worker examples.web.orders``.

PERDURE_URL=sqlite:///shop.db gunicorn --workers 2 --preload examples.web.flask_app:app
"""

from __future__ import annotations

import os
from typing import Any

from flask import Flask, request

from examples.web.orders import Approval, order
from examples.web.problem import problem
from perdure import BlockingEngine, PerdureError

Answer = tuple[dict[str, Any], int]

engine = BlockingEngine(os.environ["PERDURE_URL"], workflows=[order])
"""It opens itself at the first request: in each of the server's workers, after they were forked."""

app = Flask(__name__)


@app.errorhandler(PerdureError)
def told(error: PerdureError) -> Answer:
    """Every error of Perdure as a status code and a sentence."""
    return problem(error)


@app.post("/orders/<number>")
def submit(number: str) -> Answer:
    """Start an order. The number is its key: who is not sure whether it went through sends it again."""
    handle = engine.start(order.options(key=number), number, request.get_json()["cents"])
    return {"process": handle.id, "created": handle.created}, 201 if handle.created else 200


@app.get("/orders/<number>")
def ask(number: str) -> Answer:
    """How an order stands."""
    view = engine.handle(order, number).status()
    return {"status": view.status, "waiting": view.waiting, "state": view.state, "until": view.until}, 200


@app.post("/orders/<number>/approval")
def approve(number: str) -> Answer:
    """Tell an order what somebody decided; told twice, it counts once."""
    approval = Approval(**request.get_json())
    verdict = engine.handle(order, number).signal("approval", approval, key=approval.by)
    return {"approval": verdict}, 409 if verdict == "finished" else 202


@app.get("/orders/<number>/result")
def result(number: str) -> Answer:
    """The result of an order, waited for; 202 if it is not there yet."""
    handle = engine.handle(order, number)
    try:
        return {"result": handle.result(min(request.args.get("wait", 10.0, type=float), 60.0))}, 200
    except TimeoutError:
        return {"result": None}, 202


@app.delete("/orders/<number>")
def cancel(number: str) -> Answer:
    """Ask an order to cancel."""
    return {"cancel": engine.handle(order, number).cancel(why="asked for over HTTP")}, 202
