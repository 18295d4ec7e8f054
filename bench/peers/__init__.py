"""One driver for each peer; every driver runs as an OS process of its own, in the peer's own environment."""
