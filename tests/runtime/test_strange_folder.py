"""A worker that is started in a folder of somebody's: what lies there is found, and stands in for nothing of ours."""

from __future__ import annotations

import importlib
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from perdure import limits
from perdure.cli.worker_process import ProcessOptions, command, environment
from perdure.engine import Engine
from perdure.runtime.steps.isolated.protocol import Frames
from perdure.store.sealed.offload import Folder

FLOWS = """
import os
from perdure import step, workflow

@step(hard=True)
def seen() -> list:
    import queue
    return [queue.__file__, os.environ.get("PERDURE_URL"), os.environ.get("PERDURE_SEAL")]

@workflow
async def look() -> list:
    return await seen()
"""


async def test_a_file_in_the_folder_stands_in_for_no_library_and_a_step_sees_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "queue.py").write_text("raise SystemExit('the queue.py of the folder was imported')")
    (tmp_path / "flows.py").write_text(FLOWS)
    (tmp_path / "seal.py").write_text("codecs = []")
    monkeypatch.syspath_prepend(tmp_path)
    look = importlib.import_module("flows").look
    url = f"sqlite:///{tmp_path}/store.db"
    async with Engine(url, migrate=True) as engine:
        worker = subprocess.Popen(
            command(ProcessOptions(modules=["flows"], lease=15.0, beat=3.0, in_flight=10, stop=5.0)),
            cwd=tmp_path,
            env={**environment(url), "PERDURE_SEAL": "./seal.py"},
        )
        try:
            handle = await engine.start(look)
            found, *secrets = await handle.result(timeout=60)
        finally:
            worker.terminate()
            worker.wait()
    assert Path(found).parent == Path(os.__file__).parent
    assert secrets == [None, None]


def test_a_message_of_a_cell_may_be_as_large_as_payloads_may(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = Frames()
    frames.feed((40 * 2**20).to_bytes(4, "big"))
    with pytest.raises(ValueError, match="41,943,040 bytes"):
        frames.take()
    monkeypatch.setattr(limits, "PAYLOAD_BYTES", 64 * 2**20)
    assert frames.take() is None  # the rest is waited for


async def test_a_blob_has_the_rights_that_the_umask_leaves_and_the_group_of_its_folder(tmp_path: Path) -> None:
    home = tmp_path / "blobs"
    home.mkdir(mode=0o2770)
    home.chmod(0o2770)
    before = os.umask(0o007)
    try:
        await Folder(home).put(bytes(16), "name", b"blob")
    finally:
        os.umask(before)
    (blob,) = home.rglob("name")
    assert stat.S_IMODE(blob.stat().st_mode) == 0o660
    assert blob.parent.stat().st_mode & stat.S_ISGID or sys.platform != "linux"
