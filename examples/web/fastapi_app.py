"""Orders over HTTP with FastAPI: a web process that runs no work, beside ``perdure worker examples.web.orders``.

PERDURE_URL=sqlite:///shop.db uvicorn examples.web.fastapi_app:app
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from examples.web.orders import Approval, order
from examples.web.problem import problem
from perdure import Engine, PerdureError


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """One engine for as long as the application runs."""
    async with Engine(os.environ["PERDURE_URL"], workflows=[order]) as engine:
        app.state.engine = engine
        yield


def opened(request: Request) -> Engine:
    """The engine that :func:`lifespan` opened."""
    engine: Engine = request.app.state.engine
    return engine


Opened = Annotated[Engine, Depends(opened)]
app = FastAPI(title="Orders", lifespan=lifespan)


@app.exception_handler(PerdureError)
async def told(request: Request, error: PerdureError) -> JSONResponse:
    """Every error of Perdure as a status code and a sentence."""
    body, code = problem(error)
    return JSONResponse(body, code)


class Purchase(BaseModel):
    """What somebody buys."""

    cents: int


@app.post("/orders/{number}", status_code=201)
async def submit(number: str, purchase: Purchase, engine: Opened, response: Response) -> dict[str, Any]:
    """Start an order. The number is its key: who is not sure whether it went through sends it again."""
    handle = await engine.start(order.options(key=number), number, purchase.cents)
    response.status_code = 201 if handle.created else 200
    return {"process": handle.id, "created": handle.created}


@app.get("/orders/{number}")
async def ask(number: str, engine: Opened) -> dict[str, Any]:
    """How an order stands."""
    view = await (await engine.handle(order, number)).status()
    return {"status": view.status, "waiting": view.waiting, "state": view.state, "until": view.until}


@app.post("/orders/{number}/approval", status_code=202)
async def approve(number: str, approval: Approval, engine: Opened, response: Response) -> dict[str, Any]:
    """Tell an order what somebody decided; told twice, it counts once."""
    verdict = await (await engine.handle(order, number)).signal("approval", approval, key=approval.by)
    if verdict == "finished":
        response.status_code = 409
    return {"approval": verdict}


@app.get("/orders/{number}/result")
async def result(
    number: str, engine: Opened, response: Response, wait: Annotated[float, Query(ge=0, le=60)] = 10
) -> dict[str, Any]:
    """The result of an order, waited for; 202 if it is not there yet."""
    handle = await engine.handle(order, number)
    try:
        return {"result": await handle.result(wait)}
    except TimeoutError:
        response.status_code = 202
        return {"result": None}


@app.delete("/orders/{number}", status_code=202)
async def cancel(number: str, engine: Opened) -> dict[str, Any]:
    """Ask an order to cancel."""
    return {"cancel": await (await engine.handle(order, number)).cancel(why="asked for over HTTP")}
