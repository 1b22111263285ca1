"""QUANTIZE and DEQUANTIZE, which convert from and to float32; and DENSIFY, which expands sparse weights."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from service.compiler.importers.tflite.file.sparse import dense
from service.compiler.importers.tflite.node import Node
from service.compiler.importers.tflite.operators.real import STORED_WEIGHTS, real_values, stored_type
from service.compiler.qnn import ops
from service.core.errors import MalformedModel

# Conversions to and from int32 that LiteRT has (`EvalImpl` in tflite/kernels/quantize.cc).
_WIDE_CONVERSIONS = {("int16", "int32"), ("int32", "int8"), ("int32", "int16")}


def quantize(node: Node) -> relax.Expr:
    """Converts float32 to stored values, or one quantized type to another (`Prepare` in tflite/kernels/quantize.cc)."""
    source, target = node.input(0).dtype, node.output.dtype
    if source == "float32":
        node.require(target != "int32", "converts float32 to int32, for which LiteRT has no kernel")
        return node.emit(ops.quantize(node.expr(0), node.quantized(node.output)))
    if "int32" in (source, target) and (source, target) not in _WIDE_CONVERSIONS:
        node.unsupported(f"converts {source} to {target}, for which LiteRT has no kernel")
    return node.emit(ops.requantize(node.expr(0), node.in_type(0), node.out_type()))


def dequantize(node: Node) -> relax.Expr:
    """Converts stored values to float32 (`DequantizeImpl` in tflite/kernels/dequantize.h). Weights, including float16
    ones, are converted at compile time.
    """
    tensor = node.input(0)
    if tensor.dtype == "float16":
        data = node.data_if_constant(0)
        if data is None:
            return node.emit(relax.op.astype(node.expr(0), "float32"))
        return relax.const(data.astype(np.float32))
    if tensor.data is not None and tensor.quantization is not None:
        real = relax.const(real_values(node, tensor.data, tensor.quantization))
        if tensor.dtype not in STORED_WEIGHTS or tensor.quantization.fault_for(tensor.dtype) is not None:
            return real
        return node.keep_stored(real, tensor.data, stored_type(tensor, tensor.quantization))
    return node.emit(ops.dequantize(node.expr(0), node.quantized(tensor)))


def densify(node: Node) -> relax.Expr:
    """Returns a sparse constant with all of its elements (tflite/kernels/densify.cc)."""
    tensor = node.input(0)
    if tensor.sparse is None:
        node.malformed(f"reads the tensor {tensor.label}, which is not sparse", tensor)
    node.reserve(math.prod(tensor.shape) * np.dtype(tensor.dtype).itemsize)
    try:
        return relax.const(dense(tensor.sparse, tensor.shape), tensor.dtype)
    except MalformedModel as exc:
        node.malformed(f"reads the sparse tensor {tensor.label}, which {exc.message}", tensor)
