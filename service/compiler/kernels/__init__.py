"""Kernels written by hand: a folder for each architecture, beside what they share."""
