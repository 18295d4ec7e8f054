"""Machines: durable objects that answer calls. ``from perdure import machine``, then a class of ``machine.Machine``."""

from perdure.authoring.machine.actions import Refusal, complete, fail, run_now, schedule, suspend
from perdure.authoring.machine.definition import Machine, field
from perdure.authoring.machine.method import call, init, repair, signal, timer

__all__ = [
    "Machine", "Refusal", "call", "complete", "fail", "field", "init", "repair", "run_now", "schedule", "signal",
    "suspend", "timer",
]  # fmt: skip
