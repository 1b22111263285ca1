"""Runs CUDA kernels and programs that use NVIDIA's driver without a GPU: see README.md."""
