"""ONNX models that are already quantized: QLinear operators, or float operators between DequantizeLinear and
QuantizeLinear.

`wire` reads the bytes and `schema` says what they mean, `reader` makes plain values of them (`model`), `graph` and
`support` refuse what is broken or not compiled, `qdq` puts quantized operators where float ones stand between
conversions, and `importer` converts the rest, operator by operator (`operators`). `package` is how a model comes
whose weights are in files of their own.

Paths such as `mlas/lib/qladd.cpp` in the docstrings are those of the ONNX Runtime source (microsoft/onnxruntime).
"""
