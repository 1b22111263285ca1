"""Measures the time of a build, of each of its steps, and of a cached build."""
