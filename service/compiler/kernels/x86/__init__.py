"""Kernels for x86-64, with AVX2 and AVX-512, with and without dot products of bytes."""
