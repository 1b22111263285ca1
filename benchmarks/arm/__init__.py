"""Estimates the cost of ARM's kernels without ARM hardware: simulates the kernels' hot loops on models of cores."""
