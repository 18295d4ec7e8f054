"""Crash enumeration: small scenarios, played again for every call to the store with a blow exactly there.

``make crash`` plays them all; see :mod:`tests.simulator.enumeration.__main__` for what it can be told.
"""
