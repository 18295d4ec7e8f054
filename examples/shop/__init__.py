"""An order shop: a thousand orders, a real database of its own, and workers that die on the way."""
