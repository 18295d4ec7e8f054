"""Engines on each kind of store, as the tests of the runtime open them."""

from __future__ import annotations

from tests.runtime.conftest import opened, postgres_url

__all__ = ["opened", "postgres_url"]
