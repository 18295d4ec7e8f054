"""Rehearsals: stored histories are replayed against the code at hand, without any effect."""
