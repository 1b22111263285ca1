"""Formulas of PyTorch's engines: ATen's quantized kernels, QNNPACK, and exported programs."""
