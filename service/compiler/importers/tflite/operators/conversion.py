"""QUANTIZE and DEQUANTIZE: where float32 enters and leaves."""

from __future__ import annotations

from tvm import relax

from service.compiler.importers.tflite.node import Node
from service.compiler.qnn import ops


def quantize(node: Node) -> relax.Var:
    """float32 -> stored values, or one quantized type -> another (`Prepare` in tflite/kernels/quantize.cc)."""
    if node.input(0).dtype == "float32":
        return node.emit(ops.quantize(node.expr(0), node.out_type()))
    return node.emit(ops.requantize(node.expr(0), node.in_type(0), node.out_type()))


def dequantize(node: Node) -> relax.Var:
    """Stored values -> float32 (`DequantizeImpl` in tflite/kernels/dequantize.h)."""
    return node.emit(ops.dequantize(node.expr(0), node.in_type(0)))
