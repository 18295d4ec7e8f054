"""Broken engines: each lacks one rule of the protocol; a proof that does not notice proves nothing.

``make gate`` plants every defect in a copy of the package and hunts it with the histories of the simulator.
"""

from tests.simulator.broken.defect import read

DEFECTS = tuple(read())
"""All of them, in the order of the protocol."""
