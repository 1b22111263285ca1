"""QUANTIZE and DEQUANTIZE: where float32 enters and leaves."""

from __future__ import annotations

import numpy as np
from tvm import relax

from service.compiler.importers.tflite.node import Node
from service.compiler.importers.tflite.operators.real import real_values
from service.compiler.qnn import ops


def quantize(node: Node) -> relax.Expr:
    """float32 -> stored values, or one quantized type -> another (`Prepare` in tflite/kernels/quantize.cc)."""
    if node.input(0).dtype == "float32":
        return node.emit(ops.quantize(node.expr(0), node.out_type()))
    return node.emit(ops.requantize(node.expr(0), node.in_type(0), node.out_type()))


def dequantize(node: Node) -> relax.Expr:
    """Stored values -> float32 (`DequantizeImpl` in tflite/kernels/dequantize.h); weights at once, float16 ones too."""
    tensor = node.input(0)
    if tensor.dtype == "float16":
        return relax.const(node.data(0).astype(np.float32))
    if tensor.data is not None and tensor.quantization is not None:
        return relax.const(real_values(node, tensor.data, tensor.quantization))
    return node.emit(ops.dequantize(node.expr(0), node.in_type(0)))
