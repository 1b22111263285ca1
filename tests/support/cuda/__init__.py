"""Tests CUDA kernels without a GPU: runs them on the CPU from the source for NVRTC, and analyzes their machine code."""
