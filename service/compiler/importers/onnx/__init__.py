"""Imports ONNX models that are already quantized. They contain QLinear operators, or float operators between
DequantizeLinear and QuantizeLinear.

`wire` reads the bytes, and `schema` defines their meaning. `reader` converts them to plain values (`model`). `graph`
and `support` refuse models that are malformed or cannot be compiled. `qdq` replaces float operators between conversions
by quantized ones, and `importer` converts the operators one by one (`operators`). `package` handles models whose
weights are in separate files.

Paths such as `mlas/lib/qladd.cpp` in the docstrings are those of the ONNX Runtime source (microsoft/onnxruntime).
"""
