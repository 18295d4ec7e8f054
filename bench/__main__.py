"""The command line of the benchmarks: ``python -m bench w1 w3 --peers ours,dbos --runs 3``."""

from __future__ import annotations

import argparse
import sys

from bench import compare, contest, contestant, install, instructions, report, workload


def main() -> int:
    """Install the peers, run workloads, write the report, or measure another commit beside this one."""
    options = _parse()
    if options.what[0] == "compare":
        return _compare(options)
    if options.what[0] == "instructions":
        return _instructions(options)
    if "install" in options.what:
        install.install(options.peers.split(",") if options.peers else install.PACKAGES)
        return 0
    asked = [name for name in options.what if name != "report"]
    names = list(workload.ALL) if "all" in asked else asked
    for name in names:
        if name not in workload.ALL:
            print(f"There is no workload {name!r}: choose from {', '.join(workload.ALL)}, all, install, report.")
            return 2
    contestants = options.peers.split(",") if options.peers else list(contestant.DEFAULT)
    for name in set(contestants) - set(contestant.ALL):
        print(f"There is no contestant {name!r}: choose from {', '.join(contestant.ALL)}.")
        return 2
    for name in names:
        print(f"{name.upper()}: {workload.ALL[name].title}", flush=True)
        contest.hold(workload.ALL[name], contestants, options.runs, options.scale, options.n)
        print(report.table(workload.ALL[name]))
    report.write()
    return 0


def _compare(options: argparse.Namespace) -> int:
    commit, names = options.what[1:2], options.what[2:]
    if not commit or set(names) - set(workload.ALL):
        print(f"python -m bench compare COMMIT [{' '.join(workload.ALL)}]")
        return 2
    compare.compare(commit[0], names, options.peers.split(",") if options.peers else (), options.runs, options.scale)
    return 0


def _instructions(options: argparse.Namespace) -> int:
    commit, names = options.what[1:2], options.what[2:]
    if not commit or set(names) - set(instructions.COUNTED):
        print(f"python -m bench instructions COMMIT [{' '.join(instructions.COUNTED)}]")
        return 2
    instructions.compare(commit[0], names)
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "what",
        nargs="*",
        default=["all"],
        help=f"{' '.join(workload.ALL)}, all (the default), install, report, compare COMMIT, instructions COMMIT",
    )
    parser.add_argument("--peers", default="", help="contestants, by commas: " + ", ".join(contestant.ALL))
    parser.add_argument("--runs", type=int, default=3, help="alternated rounds; the report shows medians")
    parser.add_argument("--scale", type=float, default=1.0, help="make every run this much smaller or larger")
    parser.add_argument("-n", type=int, default=None, help="processes (or steps) in a run, for every contestant")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
