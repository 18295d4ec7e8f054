"""What happens inside a turn: the deterministic loop that runs a workflow's code, and what it may ask for."""
