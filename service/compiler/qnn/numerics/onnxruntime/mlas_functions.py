"""ONNX Runtime's functions of one 8-bit value, and its softmax: tables of 256 values, like the tables that ONNX Runtime
itself uses.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax, te, tirx

from service.compiler.qnn.numerics.formula import Scalar, clamped, pointwise, store
from service.compiler.qnn.numerics.functions.real import FUNCTIONS
from service.compiler.qnn.numerics.functions.softmax import look_up, row_reduce, within
from service.compiler.qnn.numerics.functions.unary import Tabulated
from service.compiler.qnn.numerics.scaling.rounding import round_even
from service.compiler.qnn.operation import Operation
from service.core.models.arrays import Array

_FLOAT_MAX = np.float32(np.finfo(np.float32).max)
_FAR = 1024.0  # beyond every stored value
_BEYOND_INT32, _BEYOND_INT64 = 2.0**31, 2.0**63
_LOW_BITS = (1 << 32) - 1
_RESERVED = 5  # exponents above the largest exponential's, reserved for the sum


class Tabled(Tabulated):
    """QlinearBuildLookupTable (contrib_ops/cpu/quantization/qlinear_lookup_table.cc): dequantizes, applies a float32
    function and quantizes, each step as MLAS computes it.
    """

    def __init__(self, name: str, function: Callable[[Operation, Array], Array]) -> None:
        """`function` maps float32 to float32."""
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
    """QLinearSoftmax (contrib_ops/cpu/quantization/qlinear_softmax.cc). A table contains the exponentials of the
    differences from the row's maximum. The exponentials are scaled so that their sum nearly reaches the largest
    float32, and are added in order.

    If the output's scale is below about 1 / (148 * length), the product of an exponential and the inverse scale exceeds
    float32. The results of this case were measured on ONNX Runtime 1.31.1. For int8, the conversion gives the smallest
    32-bit integer, which wraps to the largest if a negative zero point is added. For uint8, the result is the zero
    point plus the low 32 bits of x86's 64-bit conversion (CVTTSS2SI), which are 0 for an infinity.
    """

    summary = "z + round_even(e * floor(1 / s) / sum(e)), e from a float32 table, summed in order"
    takes_length = True

    def evaluate(self, operation: Operation, x: Array, length: Array | None = None) -> Array:
        if length is not None:
            return within(operation, x, length, lambda part: self.evaluate(operation, part))
        out_type = operation.per_tensor("out_type")
        exponentials = self.table(operation, x.shape[-1])[x.max(axis=-1, keepdims=True).astype(np.int64) - x]
        total = np.zeros((*x.shape[:-1], 1), np.float32)
        for column in range(x.shape[-1]):
            total = total + exponentials[..., column : column + 1]
        with np.errstate(over="ignore", invalid="ignore"):
            rounded = round_even(exponentials * self.inverse(operation) / total)
        if out_type.dtype == "int8":
            whole = np.where(rounded < _BEYOND_INT32, rounded, -_BEYOND_INT32).astype(np.int64)
            return store((whole + out_type.zero_point).astype(np.int32).astype(np.int64), out_type)
        whole = np.where(rounded < _BEYOND_INT64, rounded, np.float32(0)).astype(np.int64) & _LOW_BITS
        return store((whole + out_type.zero_point) & _LOW_BITS, out_type)

    def lower(
        self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr, length: relax.Expr | None = None
    ) -> relax.Expr:
        columns = int(x.ty.shape[-1])
        lengths = [columns] if length is None else range(1, columns + 1)
        tables = np.stack([self.table(operation, each) for each in lengths])
        exponentials = look_up(builder, x, tables[0] if length is None else tables, length)
        total = row_reduce(builder, exponentials, te.sum, "sum")
        fits = all(self.fits(operation, each) for each in lengths)
        return pointwise(builder, "normalize", self.normalize(operation, fits=fits), [exponentials, total])

    def normalize(self, operation: Operation, *, fits: bool) -> Callable[[Scalar, Scalar], Scalar]:
        """Returns the function of an exponential and the sum of its row that gives the stored value.

        Args:
            fits: true if the product of every exponential fits float32.
        """
        out_type = operation.per_tensor("out_type")
        inverse, signed = tirx.const(float(self.inverse(operation)), "float32"), out_type.dtype == "int8"

        def normalize(exponential: Scalar, total: Scalar) -> Scalar:
            rounded = tirx.nearbyint(exponential * inverse / total)
            if fits:
                return clamped(rounded.astype("int32") + out_type.zero_point, out_type)
            if signed:
                overflow = out_type.max if out_type.zero_point < 0 else out_type.min
                beyond, far = tirx.const(_BEYOND_INT32, "float32"), tirx.const(overflow, out_type.dtype)
                within = tirx.min(rounded, tirx.const(_FAR, "float32")).astype("int32")
                return tirx.Select(rounded < beyond, clamped(within + out_type.zero_point, out_type), far)
            beyond, none = tirx.const(_BEYOND_INT64, "float32"), tirx.const(0.0, "float32")
            mask = tirx.const(_LOW_BITS, "int64")
            whole = tirx.Select(rounded < beyond, rounded, none).astype("int64") & mask
            moved = (whole + tirx.const(out_type.zero_point, "int64")) & mask
            return clamped(tirx.min(moved, tirx.const(out_type.max, "int64")).astype("int32"), out_type)

        return normalize

    def inverse(self, operation: Operation) -> np.float32:
        """Returns the factor by which exponentials are multiplied before they are divided by their sum."""
        return np.float32(np.floor(np.float32(1) / np.float32(operation.per_tensor("out_type").scale)))

    def table(self, operation: Operation, length: int) -> Array:
        """Returns exp((bit_shift - d) * s) for differences d of 0..255, in float64, converted to float32."""
        operation.require_defined(operation.floating("beta") == 1.0, "ONNX Runtime supports a beta of 1 only")
        scale = operation.per_tensor("in_type").scale
        room = float(np.log(_FLOAT_MAX / np.float32(length)))
        shift = max(0.0, room - _RESERVED) / float(np.float32(scale))
        with np.errstate(over="ignore"):
            return np.asarray(np.exp((shift - np.arange(256)) * scale).astype(np.float32))

    def fits(self, operation: Operation, length: int) -> bool:
        """Returns true if the product of every exponential fits float32."""
        return float(self.table(operation, length)[0]) * float(self.inverse(operation)) < float(_FLOAT_MAX)
