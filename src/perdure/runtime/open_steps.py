"""The open steps of one process in memory: asked for, released, under way, or waiting for another attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeAlias

from msgspec import json

from perdure.kernel.retry import FailedAttempt
from perdure.kernel.undo import undoes
from perdure.turns.ask import Ask

Slot: TypeAlias = tuple[str, str]
"""A step's identity in its process: its name and its place."""

NOTHING: Any = MappingProxyType({})
"""Stands in for a dict until there is something to keep: thousands of processes are in memory at once."""


NO_SLOTS: frozenset[Slot] = frozenset()


class Running(Protocol):
    """An attempt of a step that is under way, as its process sees it. ``started`` is 0.0 until it really begins."""

    started: float

    def stop(self) -> None:
        """Silence it and cancel it."""

    def report(self) -> dict[str, Any]:
        """What the row shows of it."""

    def held_up(self) -> Callable[[], bool] | None:
        """A function that tells whether it still cannot begin; None unless it waits for a shortage to end."""


class Waiting(NamedTuple):
    """A step that waits for its next attempt: the ``timer``, the store's time, and the breaker that it waits for."""

    timer: asyncio.TimerHandle
    at: int
    breaker: str | None = None


class OpenSteps:
    """``asked`` wait for the commit of the turn that asked for them; that of those ``releasing`` is under way or done.

    ``in_flight`` are the attempts under way. ``attempts`` are the last failed ones, ``retries`` the waits for the next
    ones, ``reported`` is what earlier attempts of open steps have reported. ``origins`` are the runs in which steps
    were first asked for, where that was not always the present one. ``inherited`` are the steps that were open when a
    worker died with the process: None if none died, or once that has been forgotten. ``remembers`` says that there
    may be something to forget when a step is answered. ``announced`` are steps that run at most once and whose
    beginning is written, or goes into the next commit: they begin here, or never, each with its probe of a breaker if
    it is one. ``begun_before`` are those of which the history says so: they do not begin again. With ``progress_due``
    the next commit writes what they have reported, since a beat could not.
    """

    __slots__ = (
        "announced", "asked", "attempts", "begun_before", "in_flight", "inherited", "origins", "progress_due",
        "releasing", "remembers", "reported", "retries", "run",
    )  # fmt: skip

    def __init__(self, run: int) -> None:
        self.run = run
        self.asked: list[Ask[Any]] = []
        self.releasing: list[Ask[Any]] = []
        self.in_flight: dict[Slot, Running] = {}
        self.attempts: dict[Slot, FailedAttempt] = NOTHING
        self.retries: dict[Slot, Waiting] = NOTHING
        self.reported: dict[str, Any] = NOTHING
        self.progress_due = False
        self.origins: dict[Slot, int] | None = None
        self.inherited: set[Slot] | None = None
        self.remembers = False
        self.announced: dict[Slot, int] = NOTHING
        self.begun_before = NO_SLOTS

    # -- from the asking to the attempt ----------------------------------------------------------------------------

    def ask(self, asks: list[Ask[Any]], *, probe: int | None = None) -> None:
        """A turn has asked for these, or another attempt of them may begin.

        With ``probe``, as for its attempt, the beginning of a step that runs at most once goes into the next commit.
        """
        if probe is not None:
            self.announced = {**self.announced, **dict.fromkeys([ask.slot for ask in asks], probe)}
        if self.origins is not None:
            for ask in asks:
                self.origins.setdefault(ask.slot, self.run)
        self.asked += asks

    def expect(self) -> None:
        """The steps asked for wait for the commit under way, with those that could not be released before."""
        if self.releasing:
            self.releasing += self.asked
        else:
            self.releasing = self.asked
        self.asked = []

    def release(self) -> list[Ask[Any]]:
        """Take the steps that may begin now."""
        released, self.releasing = self.releasing, []
        return released

    def take_announced(self, slot: Slot) -> int | None:
        """What was announced of a step, which begins now or never; None if its beginning is not written."""
        return self.announced.pop(slot, None) if self.announced else None

    def begin(self, slot: Slot, attempt: Running) -> None:
        """An attempt is under way from now on."""
        self.in_flight[slot] = attempt

    def end(self, slot: Slot) -> None:
        """No attempt of the step is under way any more."""
        self.in_flight.pop(slot, None)

    def take_back(self, dropped: Iterable[Ask[Any]], open: Container[Slot]) -> None:
        """The code no longer wants these steps: stop their attempts under way."""
        for ask in dropped:
            attempt = self.in_flight.pop(ask.slot, None)
            if attempt is not None:
                attempt.stop()
            if self.remembers:
                self.forget(ask)
            self.take_announced(ask.slot)
        self.asked = [ask for ask in self.asked if ask.slot in open]
        self.releasing = [ask for ask in self.releasing if ask.slot in open]

    def stop(self) -> None:
        """Stop all that is under way, and the timers of the next attempts."""
        if self.in_flight:
            for attempt in list(self.in_flight.values()):
                attempt.stop()
            self.in_flight.clear()
        if self.retries:
            for retry in self.retries.values():
                retry.timer.cancel()
            self.retries = NOTHING

    # -- from one attempt to the next ------------------------------------------------------------------------------

    def tried(self, slot: Slot, failed: FailedAttempt) -> None:
        """Keep what is known of a step's last failed attempt."""
        if self.attempts is NOTHING:
            self.attempts = {}
        self.attempts[slot] = failed
        self.remembers = True

    def wait(self, slot: Slot, waiting: Waiting | None) -> None:
        """Keep that a step waits for its next attempt, or for its first one; None: its timer has fired."""
        if waiting is None:
            self.retries.pop(slot, None)
            return
        if self.asked:  # its timer asks for it again
            self.asked = [ask for ask in self.asked if ask.slot != slot]
        if self.retries is NOTHING:
            self.retries = {}
        self.retries[slot] = waiting
        self.remembers = True

    def keep(self, ask: Ask[Any], attempt: Running) -> None:
        """Keep what an attempt that has failed reported last, for the next one."""
        report = attempt.report()
        if report["reported"] is not None:
            if self.reported is NOTHING:
                self.reported = {}
            self.reported[f"{ask.name}:{ask.place}"] = report
            self.remembers = True

    def forget(self, ask: Ask[Any]) -> None:
        """Let go of everything kept for a step that has been answered or dropped."""
        slot = ask.slot
        if slot in self.attempts:
            del self.attempts[slot]
        if slot in self.retries:
            self.retries.pop(slot).timer.cancel()
        if self.inherited:
            self.inherited.discard(slot)
        if self.reported:
            self.reported.pop(f"{ask.name}:{ask.place}", None)

    def last_progress(self, ask: Ask[Any]) -> Any:
        """What an earlier attempt of the step reported, here or on another worker."""
        return self.reported.get(f"{ask.name}:{ask.place}", NOTHING).get("reported")

    def progress(self, *, put_off: bool = False) -> bytes | None:
        """What the steps that are open have reported, as the row shows it to people and to the next attempt.

        The row may show it a beat late. If it is ``put_off``, the next commit writes what they have reported by then.
        """
        self.progress_due = put_off
        told = dict(self.reported)
        for (name, place), attempt in self.in_flight.items():
            told[f"{name}:{place}"] = attempt.report()
        return json.encode(told) if told else None

    # -- over several runs and workers -----------------------------------------------------------------------------

    def first_run(self, slot: Slot) -> int:
        """The run in which the code first came to this place."""
        return self.run if self.origins is None else self.origins.get(slot, self.run)

    def stamp(self, origins: Mapping[Slot, int]) -> None:
        """Note in which runs these were first asked for (rule 21), unless that is known."""
        known = self.origins or {}
        for slot, run in origins.items():
            known.setdefault(slot, run)
        self.origins = known

    def resume(self) -> None:
        """A person has resumed the process: undos, and steps that broke it, have all their attempts again."""
        self.attempts = {
            slot: tried for slot, tried in self.attempts.items() if undoes(slot[1]) is None and not tried.breaks
        }

    def replayed(
        self, asks: list[Ask[Any]], open: Container[Slot], reported: Mapping[str, Any], begun: Iterable[Slot]
    ) -> None:
        """A replay has ended: these wait to be run, and ``reported`` is what the row shows of open steps.

        ``begun`` are steps that run at most once and have begun, perhaps in a run before this one.
        """
        if begun:
            self.begun_before = frozenset(begun)
        self.asked = asks
        self.attempts = {slot: tried for slot, tried in self.attempts.items() if slot in open}
        self.reported = dict(reported) if reported else NOTHING
        self.remembers = bool(self.attempts or self.reported)

    @property
    def cleared(self) -> bool:
        """Whether all that was open at the deaths of workers has ended: then these deaths are forgotten (rule 13)."""
        return self.inherited is not None and not self.inherited

    def inherit(self) -> None:
        """Workers have died with the process: the steps that wait to be run were open then."""
        self.inherited = {ask.slot for ask in self.asked}
        self.remembers = True

    def forget_deaths(self, *, written: bool) -> None:
        """A commit forgets the deaths; if it was not ``written``, the next one does."""
        self.inherited = None if written else set()
