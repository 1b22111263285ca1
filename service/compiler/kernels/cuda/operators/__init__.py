"""The kernels: one module for each family of operators."""
