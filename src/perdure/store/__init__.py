"""Keeps the rows: the protocol that every database must keep, and the two that do."""
