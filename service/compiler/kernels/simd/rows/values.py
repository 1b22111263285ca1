"""The computation of each operator of a region, on vectors of any width.

Real values are float32. Every operator rounds its result, as the oracle does, so products are not contracted with sums.
Bytes are stored bytes (unsigned). Booleans are the lanes of a comparison's result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, tirx

from service.compiler.kernels.arithmetic.conversion import convert, dequantization_of, quantization_of
from service.compiler.kernels.kernel import Declined
from service.compiler.kernels.layout import BIAS
from service.compiler.kernels.program import Buffer, Expr, Program, bits, intrinsic, load, splat
from service.compiler.kernels.rows import IDENTITIES, REDUCTIONS, Step
from service.compiler.qnn.expressions import tensors
from service.compiler.qnn.expressions.tensors import BoundOps
from service.compiler.qnn.numerics import Mode, dynamic
from service.compiler.qnn.numerics.extremes import larger, smaller
from service.compiler.qnn.numerics.functions.real import FUNCTIONS
from service.compiler.qnn.operation import Operation
from service.compiler.qnn.ops.defined import definition_of, is_real
from service.compiler.qnn.ops.real import LANES, PACKETS
from service.core.models.arrays import Array

_PACKET = 4  # if the number of columns is a multiple of this, all rows begin at aligned addresses

_KINDS = {"float32": "float32", "int32": "int32", "bool": "bool", "int8": "uint8", "uint8": "uint8"}


@dataclass(frozen=True)
class Vectors:
    """Arithmetic on vectors of `width` lanes, in the program that is being built."""

    program: Program
    width: int

    def dtype(self, name: str) -> str:
        return f"{name}x{self.width}" if self.width > 1 else name

    def keep(self, value: Expr, kind: str) -> Expr:
        """Computes `value` once, at this point.

        The value is stored in a local buffer instead of a variable. The time of TVM's analysis of variables doubles
        with each variable that is used twice.
        """
        register = self.program.register(kind, self.width)
        register.value = value
        return register.value

    def bind(self, value: Expr, dtype: str) -> Expr:
        """Computes `value` once, like `keep`, for a dtype that includes lanes."""
        return self.keep(value, dtype.split("x")[0])

    @property
    def ops(self) -> BoundOps:
        """The scalar operations of expressions, on these vectors."""
        return BoundOps(self.width, self.bind)

    def splat(self, value: Expr) -> Expr:
        return splat(value, self.width) if self.width > 1 else value

    def const(self, value: float, dtype: str) -> Expr:
        return self.splat(tirx.const(value, dtype))

    def number(self, numbers: Buffer, index: int, dtype: str) -> Expr:
        """Loads a number from a buffer of int32 into every lane."""
        value = load(numbers, index, 1)
        return self.splat(bits("float32", value) if dtype == "float32" else value)

    def rounded(self, product: Expr) -> Expr:
        """Returns a float32 product that is rounded before a caller adds something to it. `Lanes.rounded` does the
        same.
        """
        return intrinsic(self.dtype("float32"), "llvm.arithmetic.fence", product)

    def cast(self, value: Expr, kind: str) -> Expr:
        return tirx.Cast(self.dtype(kind), value)


Compute = Callable[..., Expr]  # (vectors, operands…) -> value


def _multiply(vectors: Vectors, a: Expr, b: Expr) -> Expr:
    return vectors.rounded(a * b) if str(a.ty).startswith("float") else a * b


def _is_nan(vectors: Vectors, a: Expr) -> Expr:
    """Returns true for NaN, by comparing bits. TVM simplifies the comparison of a value with itself to false."""
    size = bits(vectors.dtype("int32"), a) & vectors.const(0x7FFFFFFF, "int32")
    return tirx.GT(size, vectors.const(0x7F800000, "int32"))


def _plain(function: Callable[..., Expr]) -> Compute:
    return lambda vectors, *operands: function(*operands)


# The operators on float32 and int32 values, and on booleans.
_COMPUTE: dict[str, Compute] = {
    "relax.abs": _plain(tirx.abs),
    "relax.add": _plain(lambda a, b: a + b),
    "relax.ceil": _plain(tirx.ceil),
    "relax.divide": _plain(lambda a, b: a / b),
    "relax.equal": _plain(lambda a, b: tirx.EQ(a, b)),
    "relax.floor": _plain(tirx.floor),
    "relax.greater": _plain(lambda a, b: tirx.GT(a, b)),
    "relax.greater_equal": _plain(lambda a, b: tirx.GE(a, b)),
    "relax.isnan": _is_nan,
    "relax.less": _plain(lambda a, b: tirx.LT(a, b)),
    "relax.less_equal": _plain(lambda a, b: tirx.LE(a, b)),
    "relax.logical_and": _plain(lambda a, b: tirx.And(a, b)),
    "relax.logical_not": _plain(lambda a: tirx.Not(a)),
    "relax.logical_or": _plain(lambda a, b: tirx.Or(a, b)),
    "relax.maximum": _plain(larger),
    "relax.minimum": _plain(smaller),
    "relax.multiply": _multiply,
    "relax.negative": _plain(lambda a: -a),
    "relax.nn.relu": lambda vectors, a: larger(a, vectors.const(0.0, "float32")),
    "relax.not_equal": _plain(lambda a, b: tirx.NE(a, b)),
    "relax.round": _plain(tirx.nearbyint),
    "relax.sqrt": lambda vectors, a: intrinsic(vectors.dtype("float32"), "llvm.sqrt", a),
    "relax.subtract": _plain(lambda a, b: a - b),
    "relax.where": _plain(lambda condition, a, b: tirx.Select(condition, a, b)),
    "qnn.real_fma": lambda vectors, a, b, c: tensors.fma(a, b, c, vectors.width),
}
_DYNAMIC = ("qnn.dynamic_parameter", "qnn.dynamic_quantize", "qnn.dynamic_scale")
_REAL_ONLY = ("relax.ceil", "relax.divide", "relax.floor", "relax.isnan", "relax.nn.relu", "relax.round", "relax.sqrt")


def kind_of(dtype: str) -> str:
    """Returns the dtype of a tensor's values in registers.

    Raises:
        Declined: regions cannot contain values of this dtype.
    """
    if dtype not in _KINDS:
        raise Declined(f"it is computed in {dtype}")
    return _KINDS[dtype]


def check(mode: Mode, name: str, call: relax.Expr, operation: Operation | None) -> None:
    """Checks that a region can contain an operator.

    Raises:
        Declined: no row kernel computes the operator.
    """
    kinds = [kind_of(str(arg.ty.dtype)) for arg in getattr(call, "args", ()) if _is_tensor(arg)]
    made = kind_of(str(call.ty.dtype))
    if name in IDENTITIES or name == "relax.astype":
        return
    if name == "qnn.quantize" and operation is not None:
        quantization_of(mode, operation)
    elif name == "qnn.dequantize" and operation is not None:
        if operation.quantized("in_type").dtype not in BIAS:
            raise Declined("it is not stored in 8 bits")
        dequantization_of(mode, operation)
    elif name == "qnn.real_sum" and operation is not None:
        order = str(operation.attr("order"))
        aligned = order == PACKETS and operation.tensor(0)[0][-1] % _PACKET == 0
        if order != LANES and not aligned:
            raise Declined("no kernel adds in the order of its sum")
    elif name in _DYNAMIC and operation is not None:
        _check_dynamic(mode, operation)
    elif operation is not None and is_real(operation):
        definition = definition_of(name)
        if definition is not None and definition.expression(operation).is_long:
            raise Declined("its formula is too long for a kernel")
    elif _function(name):
        return
    elif name in REDUCTIONS:
        if made != "float32":
            raise Declined(f"it reduces {made}")
    elif name not in _COMPUTE:
        raise Declined("no kernel computes this operator")
    elif "uint8" in (*kinds, made) or (name in _REAL_ONLY and kinds[0] != "float32"):
        raise Declined(f"it computes on {kinds[0]}")


def _check_dynamic(mode: Mode, operation: Operation) -> None:
    match mode.formula(operation):
        case dynamic.Parameter() as formula if formula.joins_rows(operation):
            raise Declined("its range is computed from all rows together")
        case dynamic.ScaleByParameters() as formula if formula.whole_vectors(operation) < _channels(operation):
            raise Declined("its last channels, which do not fill a vector, are scaled in another order")


def _channels(operation: Operation) -> int:
    return int(operation.call.ty.shape[-1])


def _function(name: str) -> str:
    """Returns the key of an operator in `FUNCTIONS`, or "" if it is not one of these functions."""
    function = name.removeprefix("qnn.real_")
    return function if function in FUNCTIONS and name != function else ""


def _is_tensor(arg: Any) -> bool:
    return isinstance(arg.ty, relax.TensorType)


class Computation:
    """The arithmetic of one step.

    Attributes:
        arrays: constants that the generated code reads, in addition to the step's constant operands.
    """

    def __init__(self, mode: Mode, step: Step) -> None:
        self.step = step
        self.arrays: list[Array] = []
        self._definition = definition_of(step.name)
        if step.operation is not None and step.name in _DYNAMIC:
            self._formula = mode.formula(step.operation)
        if step.operation is not None and step.name in ("qnn.quantize", "qnn.dequantize"):
            make = quantization_of if step.name == "qnn.quantize" else dequantization_of
            self._conversion = make(mode, step.operation)
            self.arrays = [np.array(self._conversion.numbers, np.int32)]

    def apply(self, vectors: Vectors, operands: list[Expr], buffers: list[Buffer]) -> Expr:
        """Returns the step's result. `buffers` are the buffers that contain `arrays`."""
        if buffers:
            made = convert(self._conversion, buffers[0], operands[0], vectors.width)
            return vectors.rounded(made) if self.step.name == "qnn.dequantize" else made
        if self.step.name in IDENTITIES:
            return operands[0]
        if self.step.name == "relax.astype":
            return self._cast(vectors, operands[0])
        if self.step.name in _DYNAMIC:
            return self._dynamic(vectors, operands)
        if self._definition is not None and self.step.operation is not None:
            return self._definition.expression(self.step.operation).express(vectors.ops, operands)
        if _function(self.step.name):
            return FUNCTIONS[_function(self.step.name)].express(vectors.ops, operands[0])
        return _COMPUTE[self.step.name](vectors, *operands)

    def _dynamic(self, vectors: Vectors, operands: list[Expr]) -> Expr:
        operation, formula = self.step.operation, self._formula
        assert operation is not None
        match formula:
            case dynamic.Parameter():
                return formula.express(operation, *operands)
            case dynamic.QuantizeByParameters():
                x, point, factor = operands
                stored = formula.express(operation, x, point, factor, lanes=vectors.width)
                return vectors.cast(stored + vectors.const(BIAS["int8"], "int32"), "uint8")
            case dynamic.ScaleByParameters():
                return formula.express(operation, *operands, lanes=vectors.width)
        raise TypeError(formula.summary)

    def _cast(self, vectors: Vectors, value: Expr) -> Expr:
        before, after = str(self.step.call.args[0].ty.dtype), str(self.step.call.ty.dtype)
        if before == "int8":
            value = vectors.cast(value, "int32") - vectors.const(BIAS["int8"], "int32")
        if after == "bool":
            kind = "int32" if before == "int8" else kind_of(before)
            return tirx.NE(value, vectors.const(0, kind))
        if after == "int8":
            return vectors.cast(vectors.cast(value, "int8"), "uint8") ^ vectors.const(BIAS["int8"], "uint8")
        return value if before == after else vectors.cast(value, kind_of(after))


def number_of(value: float, dtype: str) -> int:
    """Returns a constant as an int32 number. A float32 constant is returned as its bits."""
    return int(np.array(value, np.float32).view(np.int32)) if dtype == "float32" else int(value)
