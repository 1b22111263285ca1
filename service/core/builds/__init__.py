"""Builds: their options, their numerics mode, and their progress."""
