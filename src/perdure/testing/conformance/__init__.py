"""The conformance suite: the sentences that every store must make true.

Give it a ground (see :class:`Ground`), and it tests the store there, with pytest and pytest-asyncio::

    pytest.register_assert_rewrite("perdure.testing.conformance")

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def ground(self, tmp_path: Path) -> Ground:
            return MyGround(tmp_path)
"""

from perdure.testing.conformance.ground import Ground
from perdure.testing.conformance.suite import StoreConformance
from perdure.testing.conformance.trial import Trial

__all__ = ["Ground", "StoreConformance", "Trial"]
