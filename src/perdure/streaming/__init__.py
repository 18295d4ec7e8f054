"""Event streams: what happens to processes, handed to consumers outside, each with a position that is kept."""
