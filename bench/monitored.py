"""What metrics cost: one-step processes with and without them, in alternating pairs of one run on SQLite.

``python -m bench.monitored [--pairs 25] [--n 4000]`` prints the rates, and the median of the ratios, which is to be
at least 0.97.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from statistics import median

from prometheus_client import CollectorRegistry

from bench.ours import order
from perdure import Engine

WARM_UP = 500


async def rate(url: str, n: int, *, metrics: bool) -> float:
    """One-step processes per second of processor time of one engine, once it is warm."""
    registry = CollectorRegistry() if metrics else None
    async with Engine(url, work=True, workflows=[order], metrics=registry) as engine:
        for number in (WARM_UP, n):
            began = time.process_time()
            handles = await engine.start_many(order, [({"steps": 1},)] * number)
            await asyncio.gather(*(handle.result() for handle in handles))
        return n / (time.process_time() - began)


def pairs(number: int, n: int) -> list[tuple[float, float]]:
    """The rates without and with metrics, pair by pair; which of the two comes first alternates."""
    found = []
    for pair in range(number):
        rates = {}
        for metrics in (False, True) if pair % 2 == 0 else (True, False):
            with tempfile.TemporaryDirectory() as folder:
                rates[metrics] = asyncio.run(rate(f"sqlite:///{Path(folder) / 'bench.db'}", n, metrics=metrics))
        found.append((rates[False], rates[True]))
        print(f"without {rates[False]:,.0f}/s  with {rates[True]:,.0f}/s  ratio {rates[True] / rates[False]:.3f}")
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.monitored", description=__doc__)
    parser.add_argument("--pairs", type=int, default=25)
    parser.add_argument("--n", type=int, default=4_000)
    options = parser.parse_args()
    found = pairs(options.pairs, options.n)
    print(f"median ratio {median(with_ / without for without, with_ in found):.3f}")


if __name__ == "__main__":
    main()
