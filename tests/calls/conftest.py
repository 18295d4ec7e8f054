"""Engines on each kind of store, as the tests of the runtime open them."""

from tests.runtime.conftest import opened

__all__ = ["opened"]
