"""How a worker runs steps: on its event loop, in threads, in a transaction, or in a child OS process."""
