"""What tests need: an engine whose time skips, with steps replaced; and what Perdure's own tests are made of."""

from perdure.testing.fakes import Fakes
from perdure.testing.skipping_engine import SkippingEngine, engine

__all__ = ["Fakes", "SkippingEngine", "engine"]
