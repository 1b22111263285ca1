"""ONNX Runtime's functions of one 8-bit value, and its softmax: tables of 256, as it makes them itself."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax, te, tirx

from service.compiler.qnn.numerics.formula import Array, Scalar, clamped, pointwise, store
from service.compiler.qnn.numerics.real_functions import FUNCTIONS
from service.compiler.qnn.numerics.rounding import round_even
from service.compiler.qnn.numerics.softmax import look_up, row_reduce
from service.compiler.qnn.numerics.unary import Tabulated
from service.compiler.qnn.operation import Operation

_FLOAT_MAX = np.float32(np.finfo(np.float32).max)
_RESERVED = 5  # of the exponent of a softmax's largest exponential


class Tabled(Tabulated):
    """QlinearBuildLookupTable (contrib_ops/cpu/quantization/qlinear_lookup_table.cc): dequantized, taken through a
    float32 function and quantized, each as MLAS does."""

    def __init__(self, name: str, function: Callable[[Operation, Array], Array]) -> None:
        """`function` takes and gives float32."""
        self.function = function
        self.summary = f"z + round_even(clamp({name}(s_in * (q - z_in)) / s)), in float32"

    def values(self, operation: Operation, x: Array) -> Array:
        in_type, out_type = operation.per_tensor("in_type"), operation.per_tensor("out_type")
        real = np.float32(in_type.scale) * (x - in_type.zero_point).astype(np.float32)
        low, high = out_type.min - out_type.zero_point, out_type.max - out_type.zero_point
        with np.errstate(over="ignore"):
            ratio = np.clip(self.function(operation, real) / np.float32(out_type.scale), low, high)
        return np.asarray(round_even(ratio).astype(np.int64) + out_type.zero_point)


def _leaky_relu(operation: Operation, x: Array) -> Array:
    return np.where(x >= 0, x, np.float32(operation.floating("alpha")) * x)


LOGISTIC = Tabled("logistic", lambda _operation, x: FUNCTIONS["logistic"].evaluate(x))
LEAKY_RELU = Tabled("leaky_relu", _leaky_relu)


class ScaledSoftmax:
    """QLinearSoftmax (contrib_ops/cpu/quantization/qlinear_softmax.cc): exponentials from a table, of differences from
    the row's maximum, scaled so that their sum nearly fills float32; added up in order.
    """

    summary = "z + round_even(e * floor(1 / s) / sum(e)), e from a float32 table, summed in order"

    def evaluate(self, operation: Operation, x: Array) -> Array:
        out_type = operation.per_tensor("out_type")
        exponentials = self.table(operation, x.shape[-1])[x.max(axis=-1, keepdims=True).astype(np.int64) - x]
        total = np.zeros((*x.shape[:-1], 1), np.float32)
        for column in range(x.shape[-1]):
            total = total + exponentials[..., column : column + 1]
        quotient = exponentials * self.inverse(operation) / total
        stored = round_even(quotient).astype(np.int64) + out_type.zero_point
        return store(stored, out_type)

    def lower(self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        out_type = operation.per_tensor("out_type")
        exponentials = look_up(builder, x, self.table(operation, int(x.ty.shape[-1])))
        total = row_reduce(builder, exponentials, te.sum, "sum")
        inverse = tirx.const(float(self.inverse(operation)), "float32")

        def normalize(exponential: Scalar, total: Scalar) -> Scalar:
            rounded = tirx.nearbyint(exponential * inverse / total).astype("int32")
            return clamped(rounded + out_type.zero_point, out_type)

        return pointwise(builder, "normalize", normalize, [exponentials, total])

    def inverse(self, operation: Operation) -> np.float32:
        """What exponentials are multiplied with before they are divided by their sum."""
        return np.float32(np.floor(np.float32(1) / np.float32(operation.per_tensor("out_type").scale)))

    def table(self, operation: Operation, length: int) -> Array:
        """exp((bit_shift - d) * s) for differences d of 0..255, in float64, to float32."""
        operation.require(operation.floating("beta") == 1.0, "has a beta, which ONNX Runtime has not")
        scale = operation.per_tensor("in_type").scale
        room = float(np.log(_FLOAT_MAX / np.float32(length)))
        shift = max(0.0, room - _RESERVED) / float(np.float32(scale))
        table = np.asarray(np.exp((shift - np.arange(256)) * scale).astype(np.float32))
        fits = float(table[0]) * float(self.inverse(operation)) < float(_FLOAT_MAX)
        operation.require(fits, "has an output scale so small that ONNX Runtime's products leave float32")
        return table
