"""Property tests of the kernel draw the same examples on every run, and no slow machine fails them."""

import os

from hypothesis import HealthCheck, settings

from tests.quick import EXAMPLES

settings.register_profile(
    "house",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=int(os.environ.get(EXAMPLES, "100")),
)
settings.load_profile("house")
