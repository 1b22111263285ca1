"""Helpers for tests of CUDA kernels, which run in `tools.cuda_emulator`: layers, models, analysis of machine code."""
