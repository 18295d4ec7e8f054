"""Retention by rules: processes that ended long ago are archived, if a rule says so, and removed."""
