"""Quantization at run time, for layers whose activations are real and whose weights are stored (`ops.dynamic`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax

from service.compiler.importers.builder.node import Node
from service.compiler.qnn import ops
from service.compiler.qnn.ops.dynamic import FACTOR, SCALE, ZERO_POINT
from service.compiler.qnn.types import QuantizedType
from service.core.models.arrays import Array

STORED = QuantizedType("int8", (1.0,), (0,))  # the scale and zero point are computed at run time


class Ranges:
    """The quantization of a tensor. Its ranges are computed along `axes` when the model runs.

    Args:
        options: further arguments of `ops.dynamic_parameter`.
    """

    def __init__(self, node: Node, x: relax.Expr, axes: Sequence[int], kernel: str, **options: Any) -> None:
        self._node, self._x, self._kernel = node, x, kernel
        self._low, self._high = (
            node.emit(extreme(x, axis=list(axes), keepdims=True), name)
            for extreme, name in ((relax.op.min, "low"), (relax.op.max, "high"))
        )
        self._options = {"kernel": kernel, **options}
        self._parameters: dict[str, relax.Var] = {}

    def parameter(self, name: str) -> relax.Var:
        if name not in self._parameters:
            call = ops.dynamic_parameter(self._low, self._high, parameter=name, **self._options)
            self._parameters[name] = self._node.emit(call, name)
        return self._parameters[name]

    def quantized(self) -> relax.Var:
        parameters = self.parameter(ZERO_POINT), self.parameter(FACTOR)
        return self._node.emit(ops.dynamic_quantize(self._x, *parameters, kernel=self._kernel), "quantized")

    def scaled(
        self, sums: relax.Expr, weights: Array, weight_type: QuantizedType, bias: relax.Expr | None, channels: int = 0
    ) -> relax.Call:
        """Returns the real values of sums of products. `channels` is the axis of the weights that counts filters."""
        what = f"has weights of {weight_type}, whose zero point is not 0"
        self._node.require_supported(not any(weight_type.zero_points), what)
        along = tuple(axis for axis in range(weights.ndim) if axis != channels)
        totals = relax.const(weights.sum(axis=along, dtype=np.int64).astype(np.int32))
        scales = relax.const(np.array(weight_type.scales, np.float32))
        parameters = self.parameter(SCALE), self.parameter(ZERO_POINT)
        return ops.dynamic_scale(sums, *parameters, totals, scales, bias, kernel=self._kernel)
