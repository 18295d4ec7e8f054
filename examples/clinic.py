"""A clinic keeps what it writes sealed: encrypted in the database, pictures in a folder; then it changes its key.

Run it with ``python -m examples.clinic``. It needs ``pip install 'perdure[seal]'`` and nothing but a folder.
"""

from __future__ import annotations

import asyncio
import tempfile
from hashlib import sha256
from pathlib import Path

from perdure import Engine, codec, offload, receive, set_state, step, workflow

SPRING, AUTUMN = sha256(b"a clinic keeps").digest(), sha256(b"its keys elsewhere").digest()
"""Real keys are random, and come from where passwords are kept."""

PATIENT = "Ann Smith"


@step
async def examine(patient: str) -> str:
    """Take a picture that no compression makes small."""
    picture = "".join(sha256(f"{patient} {line}".encode()).hexdigest() for line in range(8_000))
    return f"{patient} is fit as a fiddle: {picture}"


@workflow
async def visit(patient: str) -> str:
    """Examine a patient, and keep the findings until the doctor signs."""
    findings = await examine(patient)
    set_state({"patient": patient, "waits for": "the doctor"})
    doctor = await receive("signed", str, timeout=7 * 24 * 3600)
    return f"{findings.partition(':')[0]}, says {doctor}"


async def serve(folder: Path) -> None:
    """Let one visit begin under the one key and end under the other."""
    url, pictures = f"sqlite:///{folder}/clinic.db", offload.Folder(folder / "pictures")

    spring = [codec.Zstd(), codec.AesGcm({"spring": SPRING}, required=True)]
    async with Engine(url, work=True, workflows=[visit], codecs=spring, offload=pictures) as engine:
        handle = await engine.start(visit.options(key="visit 17"), PATIENT)
        while not (await handle.status()).state:  # noqa: ASYNC110 (as a person looks, from outside)
            await asyncio.sleep(0.01)
        print(f"who has the key reads    {(await handle.status()).state}")

    look(folder, pictures.path)

    autumn = [codec.Zstd(), codec.AesGcm({"autumn": AUTUMN, "spring": SPRING}, required=True)]
    async with Engine(url, work=True, workflows=[visit], codecs=autumn, offload=pictures) as engine:
        again = await engine.start(visit.options(key="visit 17"), PATIENT)
        print(f"started again            {'as another one' if again.created else 'as the same one'}")
        await again.signal("signed", "Dr. Jones")
        print(f"under the new key        {await again.result()}")


def look(folder: Path, pictures: Path) -> None:
    """Look for the patient's name in all that was written, as a thief would."""
    kept = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    seen = any(PATIENT.encode() in content for content in kept.values())
    outside = sum(pictures in path.parents for path in kept)
    print(f"who has not finds a name {'somewhere' if seen else 'nowhere'}; {outside} picture lies outside")


def main() -> None:
    """Keep everything in a folder that is removed at the end."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(serve(Path(folder)))


if __name__ == "__main__":
    main()
