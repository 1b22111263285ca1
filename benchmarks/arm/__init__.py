"""Estimates the cost of ARM's kernels without ARM hardware: simulates the pipelines of cores on the kernels' hot loops."""
