"""The parts of a serving run. Each measures one thing and records it."""
