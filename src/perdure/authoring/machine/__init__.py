"""Machines: durable objects that answer calls. ``from perdure import machine``, then a class of ``machine.Machine``."""

from perdure.authoring.machine.actions import (
    Refusal,
    complete,
    fail,
    remove,
    run_now,
    schedule,
    schedule_removal,
    suspend,
)
from perdure.authoring.machine.definition import Machine, field
from perdure.authoring.method import call, init, repair, signal, timer

__all__ = [
    "Machine", "Refusal", "call", "complete", "fail", "field", "init", "remove", "repair", "run_now", "schedule",
    "schedule_removal", "signal", "suspend", "timer",
]  # fmt: skip
