"""The verdict on a killed worker is read from the log of effects: what is missing, repeated, and taken over when."""

from __future__ import annotations

from bench.recovery import PAUSE_SECONDS, STEPS, verdict

DEAD, ALIVE = 11, 22


def effects(worker: int, process: int, steps: range, begun: float) -> list[tuple[int, int, int, float]]:
    """One effect each second."""
    return [(worker, process, step, begun + step) for step in steps]


def test_the_takeover_is_the_first_effect_of_a_survivor_on_a_process_of_the_dead() -> None:
    log = (
        effects(DEAD, 0, range(2), 0.0) + effects(ALIVE, 1, range(STEPS), 0.0) + effects(ALIVE, 0, range(2, STEPS), 1.0)
    )
    answer = verdict(log, n=2, begun=0.0, killed={DEAD}, killed_at=1.5)
    assert (answer["seen_s"], answer["missing"], answer["repeated"], answer["repeated_most"]) == (1.5, 0, 0, 0)
    assert answer["after_kill_s"] == 1.0 + STEPS - 1 + PAUSE_SECONDS - 1.5


def test_an_effect_made_twice_counts_as_repeated_and_one_never_made_as_missing() -> None:
    log = effects(DEAD, 0, range(2), 0.0) + effects(ALIVE, 0, range(1, STEPS), 2.0)
    answer = verdict(log, n=2, begun=0.0, killed={DEAD}, killed_at=1.5)
    assert (answer["missing"], answer["repeated"], answer["repeated_most"]) == (STEPS, 1, 1)
