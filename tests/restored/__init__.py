"""A backup is put back under running workers: what it lacks is held and told, and nothing is done twice by itself."""
