"""What tests of metrics and traces may ask for: engines on each kind of store, and a provider that keeps its spans."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.runtime.conftest import opened, postgres_url

__all__ = ["Spans", "opened", "postgres_url", "spans"]


class Spans:
    """A provider of OpenTelemetry's SDK, and the spans that came of it, of however many workers."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    @property
    def all(self) -> tuple[Any, ...]:
        """The spans that have ended."""
        return self.exporter.get_finished_spans()

    def named(self, name: str) -> list[Any]:
        """Those of one name, in the order of their ends."""
        return [span for span in self.all if span.name == name]

    def one(self, name: str) -> Any:
        """The only one of this name."""
        [span] = self.named(name)
        return span


@pytest.fixture
def spans() -> Spans:
    return Spans()
