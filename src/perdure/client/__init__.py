"""The client: what can be asked and told from outside a worker."""
