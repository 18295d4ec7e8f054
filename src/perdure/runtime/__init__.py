"""A worker: gives due processes their turns, runs steps, and finds what is overdue."""
