"""What load can do: a soak under kills, a hundred thousand due at once, herds, hot processes, poison, outages."""
