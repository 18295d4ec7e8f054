"""All sentences of the conformance suite in one class, to be inherited by a test class."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from perdure.store.base import Store
from perdure.testing.clock import Time
from perdure.testing.conformance.beating import Beating
from perdure.testing.conformance.bringing import Bringing
from perdure.testing.conformance.claiming import Claiming
from perdure.testing.conformance.committing import Committing
from perdure.testing.conformance.damaged import Damaged
from perdure.testing.conformance.fencing import Fencing
from perdure.testing.conformance.filling import Filling
from perdure.testing.conformance.greeting import Greeting
from perdure.testing.conformance.ground import Ground
from perdure.testing.conformance.hostile import Hostile
from perdure.testing.conformance.lettering import Lettering
from perdure.testing.conformance.limiting import Limiting
from perdure.testing.conformance.naming import Naming
from perdure.testing.conformance.outward import Outward
from perdure.testing.conformance.placing import Placing
from perdure.testing.conformance.pruning import Pruning
from perdure.testing.conformance.racing import Racing
from perdure.testing.conformance.reading import Reading
from perdure.testing.conformance.recalling import Recalling
from perdure.testing.conformance.recording import Recording
from perdure.testing.conformance.removing import Removing
from perdure.testing.conformance.seizing import Seizing
from perdure.testing.conformance.sending import Sending
from perdure.testing.conformance.sharing import Sharing
from perdure.testing.conformance.showing import Showing
from perdure.testing.conformance.starting import Starting
from perdure.testing.conformance.streaming import Streaming
from perdure.testing.conformance.sweeping import Sweeping
from perdure.testing.conformance.timekeeping import Timekeeping
from perdure.testing.conformance.trial import Trial
from perdure.testing.conformance.waking import Waking


@pytest.mark.asyncio
class StoreConformance(
    Starting,
    Greeting,
    Sending,
    Lettering,
    Claiming,
    Limiting,
    Placing,
    Sharing,
    Seizing,
    Committing,
    Outward,
    Bringing,
    Fencing,
    Beating,
    Sweeping,
    Reading,
    Showing,
    Recording,
    Streaming,
    Filling,
    Pruning,
    Removing,
    Timekeeping,
    Waking,
    Naming,
    Recalling,
    Racing,
    Hostile,
    Damaged,
):
    """Inherit it, and give the fixture ``ground``: one empty database for each test."""

    @pytest_asyncio.fixture
    async def store(self, ground: Ground) -> AsyncIterator[Store]:
        """The store on trial, open."""
        store = ground.store()
        await store.open()
        yield store
        await store.close()

    @pytest.fixture
    def trial(self, ground: Ground, store: Store) -> Trial:
        """The store on its ground, with the suite's short words."""
        return Trial(ground, store)

    @pytest.fixture
    def time(self, ground: Ground) -> Time:
        """The store's time, to be moved."""
        return ground.time
