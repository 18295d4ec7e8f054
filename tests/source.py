"""Where the Perdure under test stands: programs that tests start import it from there too.

This is ``src``, but for a broken engine (``make gate``), which is a copy in a folder of its own.
"""

import os
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]
_PERDURE = find_spec("perdure")
assert _PERDURE is not None and _PERDURE.origin is not None
SOURCE = str(Path(_PERDURE.origin).parents[1])
PYTHONPATH = os.pathsep.join([SOURCE, str(ROOT)])
"""What a program needs to import Perdure, and modules of these tests."""
