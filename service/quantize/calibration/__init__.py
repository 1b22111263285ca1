"""Runs the float model on a calibration set, and chooses types from the statistics."""
