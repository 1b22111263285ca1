"""Imports ONNX models that are already quantized. Such models contain QLinear operators, or float operators between
DequantizeLinear and QuantizeLinear.

`file` reads the bytes as plain values (`model`), and refuses what is malformed. `support` refuses models that cannot be
compiled. `rewrites` simplifies the graph, `qdq` replaces float operators between conversions by quantized ones, and
`importer` converts the operators one by one (`operators`).

Paths such as `mlas/lib/qladd.cpp` in the docstrings are those of the ONNX Runtime source (microsoft/onnxruntime).
"""
