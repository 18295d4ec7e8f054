"""Real worker processes are killed and stopped; nothing may be lost, and no hand needed."""
