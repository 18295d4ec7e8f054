"""The conformance suite on PostgreSQL."""

from __future__ import annotations

from perdure.testing.conformance import StoreConformance


class TestDirectly(StoreConformance):
    """On connections of one's own."""
