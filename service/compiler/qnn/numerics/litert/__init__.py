"""Formulas of LiteRT's kernels alone: 16-bit activations, recurrent layers, detections, dynamic quantization."""
