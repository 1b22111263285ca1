"""Regions of operators that are computed row by row, so that intermediate values stay in registers or in cache.

- `region`: the kernel of a region (`kernels.rows`).
- `plan`: assigns each value of a region to a pass over the row.
- `tile`: the passes over a few rows.
- `values`: the computation of each operator.
- `reductions`: reduces the elements of a row to one value.
- `softmax`: a separate kernel for softmax of 8-bit rows.
"""
