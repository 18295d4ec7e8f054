"""Hard steps: each runs in a child OS process of a bounded pool, and can be killed."""
