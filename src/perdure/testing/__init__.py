"""What tests of durable processes need: a clock that can be moved, and the suite that every store must pass."""
