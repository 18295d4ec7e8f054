"""The client: starts, reads, signals and commands processes from outside a worker."""
