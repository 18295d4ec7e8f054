"""Checks of stored processes: read with their surroundings, examined by the laws, mended by a durable process."""
