"""For tests: an engine whose time skips and whose steps can be replaced; and the parts of Perdure's own tests."""

from perdure.testing.fakes import Fakes
from perdure.testing.histories import History, histories, rehearse
from perdure.testing.skipping_engine import SkippingEngine, engine

__all__ = ["Fakes", "History", "SkippingEngine", "engine", "histories", "rehearse"]
