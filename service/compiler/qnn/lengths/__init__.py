"""Models that accept inputs of any length up to the one that they are built for: see `bind.bind_length`."""
