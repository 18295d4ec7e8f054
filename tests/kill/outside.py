"""What the victims' module of codecs says when payloads are sealed: everything goes outside."""

from __future__ import annotations

import os

import perdure

FOLDER = "PERDURE_TEST_BLOBS"

codecs = [perdure.codec.Zstd(), perdure.codec.AesGcm({"one": bytes(range(32))})]
offload = perdure.offload.Folder(os.environ.get(FOLDER, "blobs"), above=0)
