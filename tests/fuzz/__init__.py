"""Fuzzing: every parser and codec fed with bytes that nobody sensible would send."""
