"""The interface of a numerics mode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from service.compiler.qnn.expressions.halves import HALVES
from service.compiler.qnn.numerics import counting
from service.compiler.qnn.numerics.defined import formula_of
from service.compiler.qnn.numerics.formula import Formula
from service.compiler.qnn.numerics.functions.power import RealPower
from service.compiler.qnn.numerics.functions.real import FUNCTIONS, RealFunction
from service.compiler.qnn.numerics.functions.unary import Table
from service.compiler.qnn.numerics.moving import TakePixels
from service.compiler.qnn.numerics.ordering import RunningSum, TopPlaces
from service.compiler.qnn.numerics.pooling import AveragePool, MaxPool
from service.compiler.qnn.numerics.scaling.affine import Concatenate, Dequantize, StorageCast
from service.compiler.qnn.numerics.scaling.by_channel import ByChannel, is_by_channel
from service.compiler.qnn.numerics.scaling.halves import Halved, expressed_of
from service.compiler.qnn.numerics.scattering import ScatterRows
from service.compiler.qnn.numerics.simulated import FORMULAS, HELD, Held
from service.compiler.qnn.numerics.sums.accumulate import Conv2d, Dense
from service.compiler.qnn.numerics.sums.moments import RealFma, RealMean, RealSquares
from service.compiler.qnn.numerics.sums.products import MatMul
from service.compiler.qnn.numerics.sums.real import BlockMatMul, RealConv2d, RealMatMul
from service.compiler.qnn.numerics.sums.summation import RealSum
from service.compiler.qnn.numerics.sums.transposed import Conv2dTranspose
from service.compiler.qnn.operation import VECTORIZED, Operation
from service.compiler.qnn.ops.defined import definition_of
from service.core.errors import UnsupportedOperator


@dataclass(frozen=True)
class Mode:
    """A numerics mode.

    Attributes:
        name: the name in `core.builds.numerics`.
        reference: the runtime and kernels whose results the mode reproduces.
        formulas: QNN operator name -> its arithmetic. Suffixes distinguish cases that differ: `conv2d+requantize`
            converts accumulators to storage, `…:int16` reads or writes 16-bit values, and a key such as `…:gemm`
            belongs to the kernel of that name in `qnn.ops.builtin`.
    """

    name: str
    reference: str
    formulas: Mapping[str, Formula]

    def key(self, operation: Operation) -> str:
        """Returns the key of `formulas` for `operation`, which may depend on the operation that computed its
        operand.
        """
        name = _row_of(operation)
        rows = [name]
        if operation.producer is not None:
            rows.insert(0, f"{operation.producer.name.removeprefix('qnn.')}+{rows[0]}")
        if operation.is_adaptive:
            rows.insert(0, f"{rows[-1]}:adaptive")
        if "int16" in operation.storages:
            rows = [f"{row}:int16" for row in rows] + rows
        if operation.builtin is not None:
            rows.insert(0, f"{name}:{operation.builtin}")
        return next((row for row in rows if row in self.formulas), rows[-1])

    def has_kernel(self, operation: Operation) -> bool:
        """Returns true if the mode has a formula for the kernel that computes `operation`."""
        return f"{_row_of(operation)}:{operation.builtin}" in self.formulas

    def formula(self, operation: Operation) -> Formula:
        """Returns the arithmetic of `operation`.

        Raises:
            UnsupportedOperator: the mode does not define the operation.
        """
        if (definition := definition_of(operation.name)) is not None:
            return formula_of(definition, operation, self.formulas["dequantize"], self.formulas["quantize"])
        key = self.key(operation)
        biased = operation.name == "qnn.requantize" and len(operation.call.args) > 1
        if key not in self.formulas or (biased and not getattr(self.formulas[key], "adds_bias", False)):
            what = f"{key} with a bias of real values" if biased else key
            raise UnsupportedOperator(
                f"the numerics mode {self.name} does not define {what}",
                op=operation.name,
                hint="use the numerics mode of the framework that wrote the file",
            )
        if operation.name.removeprefix("qnn.") in HELD:
            return Held(self.formulas[key])
        if is_by_channel(operation):
            return ByChannel(self.formulas[key])
        expressed = expressed_of(operation)
        return Halved(self.formulas[key], expressed) if expressed in HALVES else self.formulas[key]


def _row_of(operation: Operation) -> str:
    """Returns the key of an operator without the suffixes that depend on its operands."""
    name = operation.name.removeprefix("qnn.")
    return "requantize" if operation.name == VECTORIZED else HELD.get(name, name)


# Formulas that are the same in all modes. Either nothing is rounded, or all runtimes round in the same way. Functions
# and sums of real values are defined here; the results of every runtime differ from them by at most a few units in the
# last place.
EXACT: Mapping[str, Formula] = {
    "conv2d": Conv2d(),
    "conv2d_transpose": Conv2dTranspose(),
    "dense": Dense(),
    "matmul": MatMul(),
    "avg_pool2d": AveragePool(),
    "max_pool2d": MaxPool(),
    "concatenate": Concatenate(),
    "dequantize": Dequantize(),
    "block_matmul": BlockMatMul(),
    "real_conv2d": RealConv2d(),
    "real_fma": RealFma(),
    "real_matmul": RealMatMul(),
    "real_mean": RealMean(),
    "real_power": RealPower(),
    "real_squares": RealSquares(),
    "real_sum": RealSum(),
    "take_pixels": TakePixels(),
    **{f"real_{name}": RealFunction(name) for name in FUNCTIONS},
    "running_sum": RunningSum(),
    "scatter_rows": ScatterRows(),
    **FORMULAS,
    **counting.FORMULAS,
    "storage_cast": StorageCast(),
    "table": Table(),
    "top_places": TopPlaces(),
}
