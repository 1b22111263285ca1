"""What each numerics mode computes: a table from operator to formula.

A mode is the name of one reference runtime. LiteRT's own kernels disagree with each other: its reference kernels
round twice in fixed point, XNNPACK rounds once in float. So every build, report and claim of exactness names its mode.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from service.compiler.qnn.numerics.accumulate import Conv2d, Dense
from service.compiler.qnn.numerics.affine import Concatenate, Dequantize, Quantize
from service.compiler.qnn.numerics.elementwise import FixedPointAdd, FixedPointMul, FloatMul, SharedShiftAdd
from service.compiler.qnn.numerics.formula import Formula
from service.compiler.qnn.numerics.pooling import AveragePool, FixedPointMean, FloatMean, MaxPool
from service.compiler.qnn.numerics.requantize import FloatRequantize, OneRounding, SharedMultiplier, TwoRoundings
from service.compiler.qnn.numerics.softmax import FixedPointSoftmax, TableSoftmax
from service.compiler.qnn.operation import Operation
from service.core.numerics import LITERT_REFERENCE, XNNPACK, parse_mode


@dataclass(frozen=True)
class Mode:
    """A numerics mode.

    Attributes:
        name: as in `core.numerics`.
        reference: the runtime and kernels whose answers it gives.
        formulas: QNN operator name -> its arithmetic; `conv2d+requantize` is what takes accumulators to storage.
    """

    name: str
    reference: str
    formulas: Mapping[str, Formula]

    def key(self, operation: Operation) -> str:
        """The row of `formulas` that `operation` falls under; it may depend on what made its operand."""
        name = operation.name.removeprefix("qnn.")
        if operation.producer is not None:
            after = f"{operation.producer.name.removeprefix('qnn.')}+{name}"
            if after in self.formulas:
                return after
        return name

    def formula(self, operation: Operation) -> Formula:
        """The arithmetic of `operation`."""
        return self.formulas[self.key(operation)]


_EXACT: Mapping[str, Formula] = {
    "conv2d": Conv2d(),
    "dense": Dense(),
    "avg_pool2d": AveragePool(),
    "max_pool2d": MaxPool(),
    "concatenate": Concatenate(),
    "dequantize": Dequantize(),
}

_MODES = {
    LITERT_REFERENCE: Mode(
        LITERT_REFERENCE,
        "LiteRT 2.3.0, reference kernels (BUILTIN_REF)",
        {
            **_EXACT,
            "quantize": Quantize(reciprocal=False),
            "requantize": TwoRoundings(),
            "conv2d+requantize": TwoRoundings(),
            "dense+requantize": OneRounding(),
            "add": FixedPointAdd(),
            "mul": FixedPointMul(),
            "mean": FixedPointMean(),
            "softmax": FixedPointSoftmax(),
        },
    ),
    XNNPACK: Mode(
        XNNPACK,
        "LiteRT 2.3.0, default delegate (XNNPACK)",
        {
            **_EXACT,
            "quantize": Quantize(reciprocal=True),
            "requantize": SharedMultiplier(),
            "conv2d+requantize": FloatRequantize(),
            "dense+requantize": FloatRequantize(),
            "add": SharedShiftAdd(),
            "mul": FloatMul(),
            "mean": FloatMean(),
            "softmax": TableSoftmax(),
        },
    ),
}


def get_mode(name: str) -> Mode:
    """The mode called `name`.

    Raises:
        Unsupported: there is none.
    """
    return _MODES[parse_mode(name)]
