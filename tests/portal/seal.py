"""A codec that leaves payloads as they are: with one, large payloads are sealed in threads."""

from __future__ import annotations

from perdure.store.sealed.codec import Zstd

codecs = [Zstd(above=1 << 30)]
