"""Formulas of ONNX Runtime's CPU kernels (MLAS)."""
