"""Slips: a workflow whose result is a model of pydantic."""

from __future__ import annotations

from datetime import date

from pydantic import BaseModel

from perdure import workflow


class Slip(BaseModel):
    """What was sold."""

    order: str
    day: date


@workflow
async def slip(order: str) -> Slip:
    """Say what was sold."""
    return Slip(order=order, day=date(2026, 7, 1))
