"""ONNX models that are already quantized: QLinear operators, or float operators between DequantizeLinear and
QuantizeLinear.

`wire` reads the bytes and `schema` says what they mean, `reader` makes plain values of them (`model`), `graph` and
`support` refuse what is broken or not compiled, `qdq` puts quantized operators where float ones stand between
conversions, and `importer` converts the rest, operator by operator (`operators`).

Paths such as `mlas/lib/qladd.cpp` in the docstrings are those of the ONNX Runtime source (microsoft/onnxruntime).
"""

from service.compiler.importers.onnx.importer import import_model

__all__ = ["import_model"]
