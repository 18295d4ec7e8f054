"""Broken engines: each lacks one rule of the protocol; a proof that does not notice proves nothing.

``make gate`` plants every defect in a copy of the package and hunts it with the histories of the simulator.
"""

from tests.simulator.broken.defect import Defect, Edit, read

DEFECTS = tuple(read())
"""All of them, in the order of the protocol."""
SOUND = Defect("the engine as it is")
"""No defect at all: whoever says that this one breaks a law is wrong."""
CANARY = Defect(
    "the canary: no process has a value",
    edits=[Edit("runtime/turn_commit.py", ["result=result, removes=gone)"], ['result=b"null", removes=gone)'])],
)
"""So broken that a handful of histories must notice it; if they do not, they notice nothing."""
