"""The formulas of the simulated form, which all modes share: stored values of the mode, as float32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, te, tirx, topi

from service.compiler.qnn.numerics.formula import OPAQUE, Formula, Scalar, pointwise
from service.compiler.qnn.operation import Operation
from service.core.models.arrays import Array

# Operator of the simulated form -> the operator that it simulates. The stored values of the simulated operator are
# float32 in the simulated form.
HELD = {"simulated_quantize": "quantize", "simulated_dequantize": "dequantize"}


@dataclass(frozen=True)
class Held:
    """One of the mode's conversions, with an operand and a result that are float32."""

    inner: Formula

    @property
    def summary(self) -> str:
        return self.inner.summary

    def evaluate(self, operation: Operation, x: Array) -> Array:
        return self.inner.evaluate(operation, _stored(operation, x)).astype(np.float32)

    def lower(self, operation: Operation, builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        if operation.name == "qnn.simulated_dequantize":
            x = builder.emit(relax.op.astype(x, operation.quantized("in_type").dtype))
            return self.inner.lower(operation, builder, x)
        return relax.op.astype(builder.emit(self.inner.lower(operation, builder, x)), "float32")


class SimulatedAccumulate:
    """The formula of `qnn.simulated_accumulate`."""

    summary = "the integer of the same value, modulo 2**bits"

    def evaluate(self, operation: Operation, sums: Array) -> Array:
        return _wrapped(sums.astype(np.int64), operation.integer("bits")).astype(str(operation.attr("dtype")))

    def lower(self, operation: Operation, builder: relax.BlockBuilder, sums: relax.Expr) -> relax.Expr:
        bits, dtype = operation.integer("bits"), str(operation.attr("dtype"))

        def accumulate(value: Scalar) -> Scalar:
            return _wrapped_scalar(value.astype("int64"), bits).astype(dtype)

        return pointwise(builder, "accumulate", accumulate, [sums])


class SimulatedExtent:
    """The formula of `qnn.simulated_extent`."""

    summary = "the least, the largest, and how many are changed modulo 2**bits"

    def evaluate(self, operation: Operation, sums: Array) -> Array:
        whole = sums.astype(np.int64)
        overflows = int((_wrapped(whole, operation.integer("bits")) != whole).sum())
        return np.array([whole.min(initial=0), whole.max(initial=0), overflows], np.int64)

    def lower(self, operation: Operation, builder: relax.BlockBuilder, sums: relax.Expr) -> relax.Expr:
        bits = operation.integer("bits")

        def extent(sums: te.Tensor) -> te.Tensor:
            whole = te.compute(sums.shape, lambda *at: sums(*at).astype("int64"), name="whole")
            changed = te.compute(
                sums.shape,
                lambda *at: (_wrapped_scalar(whole(*at), bits) != whole(*at)).astype("int64"),
                name="changed",
            )
            zero = tirx.const(0, "int64")
            low, high, overflows = (
                reduced(of) for reduced, of in ((topi.min, whole), (topi.max, whole), (topi.sum, changed))
            )
            parts: list[Scalar] = [tirx.min(low(), zero), tirx.max(high(), zero), overflows()]
            return te.compute((3,), lambda i: tirx.Select(i == 0, parts[0], tirx.Select(i == 1, parts[1], parts[2])))

        return builder.call_te(extent, sums, primfunc_name_hint="extent", primfunc_attrs={"op_pattern": OPAQUE})


def _stored(operation: Operation, x: Array) -> Array:
    """Returns the integers of a value that is represented as float32."""
    return x.astype(operation.quantized("in_type").dtype) if operation.name == "qnn.simulated_dequantize" else x


def _wrapped(values: Array, bits: int) -> Array:
    """Wraps int64 around to two's complement of `bits`."""
    spare = 64 - bits
    return np.asarray((values.astype(np.uint64) << np.uint64(spare)).astype(np.int64) >> np.int64(spare))


def _wrapped_scalar(value: Scalar, bits: int) -> Scalar:
    spare = tirx.const(64 - bits, "int64")
    return tirx.shift_right(tirx.shift_left(value, spare), spare)


FORMULAS: dict[str, Any] = {
    "simulated_accumulate": SimulatedAccumulate(),
    "simulated_extent": SimulatedExtent(),
}
