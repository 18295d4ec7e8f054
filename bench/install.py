"""Install the peers from the public package registries, each into an environment of its own below bench/.peers."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from collections.abc import Iterable

from bench.contestant import PEERS

PACKAGES: dict[str, tuple[str, ...]] = {
    "dbos": ("dbos==3.4.0", "psycopg[binary]"),
    "absurd": ("absurd-sdk==0.5.1", "absurdctl==0.5.1", "psycopg[binary]"),
    "restate": ("restate-sdk==1.3.0", "hypercorn", "uvloop", "aiohttp"),
    "pgqueuer": ("pgqueuer==1.6.0", "asyncpg"),
}
RESTATE_SERVER = "@restatedev/restate-server@1.7.12"


def install(names: Iterable[str] = PACKAGES) -> None:
    """Make the environments of the named peers; those that are there are brought up to date."""
    for name in names:
        home = PEERS / name
        print(f"installing {name} …", flush=True)
        if not (home / "bin" / "python").exists():
            venv.create(home, with_pip=True)
        quiet = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        if subprocess.run([*quiet, *PACKAGES[name]]).returncode:
            print(f"  {name} does not install here; it will be left out of the runs", file=sys.stderr)
            shutil.rmtree(home, ignore_errors=True)
        elif name == "restate":
            _install_server()


def _install_server() -> None:
    """The server of Restate comes as a program inside an npm package."""
    place = PEERS / "restate" / "server"
    place.mkdir(exist_ok=True)
    npm = shutil.which("npm")
    command = [
        npm or "npm",
        "install",
        "--prefix",
        str(place),
        "--no-save",
        "--ignore-scripts",
        "--silent",
        RESTATE_SERVER,
    ]
    if npm is None or subprocess.run(command).returncode:
        print("  the server of Restate needs npm to be installed; Restate will be left out", file=sys.stderr)
        shutil.rmtree(PEERS / "restate", ignore_errors=True)
