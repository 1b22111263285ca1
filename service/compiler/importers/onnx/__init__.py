"""Imports ONNX models that are already quantized: QLinear operators, or float operators between DequantizeLinear and
QuantizeLinear.

`wire` reads the bytes, and `schema` defines their meaning. `reader` converts them to plain values (`model`). `graph`
and `support` refuse models that are malformed or cannot be compiled. `qdq` puts quantized operators in place of float
ones between conversions, and `importer` converts the rest, operator by operator (`operators`). `package` handles models
whose weights are in separate files.

Paths such as `mlas/lib/qladd.cpp` in the docstrings are those of the ONNX Runtime source (microsoft/onnxruntime).
"""
