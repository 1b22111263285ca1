"""The simulated form of a quantized model: the same affine space, in float storage.

As `qnn.simulated_quantize` of TVM's framework: every quantized tensor holds the integers that it would store as
float32, and sums of products are taken in float32. While no sum exceeds 2**24 that is the integer form, bit for bit;
what a narrower accumulator does to a model is seen by wrapping the sums around as it would.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax

from service.compiler.qnn import graph, oracle
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.numerics.accumulate import centered
from service.compiler.qnn.numerics.exact import sliding
from service.compiler.qnn.numerics.formula import Array
from service.compiler.qnn.operation import Operation, value_of

EXACT_BITS = 25  # two's complement of the integers that float32 counts without gaps
_STORAGES = ("int8", "uint8", "int16", "uint16")
_ACCUMULATORS = ("int32", "int64")  # held as float32, too, but what else has these dtypes is not


@dataclass(frozen=True)
class Sums:
    """The accumulators of one operator.

    Attributes:
        bits: of the narrowest two's complement that holds all of them.
        overflows: how many did not fit the accumulator.
    """

    bits: int
    overflows: int


@dataclass(frozen=True)
class Simulated:
    """
    Attributes:
        outputs: the model's.
        sums: by the name of the value that they are.
    """

    outputs: list[Array]
    sums: Mapping[str, Sums]


def simulate(module: tvm.IRModule, mode: Mode, inputs: Sequence[Array], bits: int = 32) -> Simulated:
    """Evaluates a quantized model in its simulated form.

    Args:
        module: as an importer makes it.
        bits: of accumulators. Those of more than `EXACT_BITS` are as float32 has them: rounded where it has gaps.

    Raises:
        UnsupportedOperator: as `oracle.run`.
    """
    function = graph.main_of(module)
    values: dict[relax.Var, Any] = {
        param: _held(param, given) for param, given in zip(function.params, inputs, strict=True)
    }
    sums: dict[str, Sums] = {}
    for var, expr, operation in graph.operations(function):
        name = operation.name.removeprefix("qnn.") if operation is not None else ""
        if operation is not None and name in SIMULATED:
            operands = [values[arg] if isinstance(arg, relax.Var) else value_of(arg) for arg in operation.call.args]
            whole = SIMULATED[name](operation, *(np.asarray(operand, np.float32) for operand in operands))
            values[var] = _wrapped(whole, bits)
            sums[var.name] = Sums(_bits_of(whole), int((values[var] != whole).sum()))
        else:
            stored = {each: _stored(each, values[each]) for each in graph.variables(expr)}
            values[var] = _held(var, oracle.evaluate(expr, operation, mode, stored))
    ends = [result for result in graph.results_of(function) if isinstance(result, relax.Var)]
    return Simulated([np.asarray(_stored(end, values[end])) for end in ends], sums)


def _held(var: relax.Var, value: Any) -> Any:
    """What is stored as integers, as float32."""
    return value.astype(np.float32) if _dtype(var) in _STORAGES else value


def _stored(var: relax.Var, value: Any) -> Any:
    """The integers that float32 holds: what an operator without sums of products reads."""
    dtype = _dtype(var)
    return value.astype(dtype) if dtype in (*_STORAGES, *_ACCUMULATORS) else value


def _dtype(var: relax.Var) -> str:
    return str(var.ty.dtype) if isinstance(var.ty, relax.TensorType) else ""


def _conv2d(operation: Operation, x: Array, weight: Array, bias: Array | None = None) -> Array:
    filters, kernel_h, kernel_w, depth = weight.shape
    groups, (top, left, bottom, right) = operation.integer("groups"), operation.ints("padding", 4, 0)
    real = centered(x, operation.per_tensor("in_type"), np.float32)
    real = np.pad(real, ((0, 0), (top, bottom), (left, right), (0, 0)))
    n, height, width, _ = (int(dim) for dim in operation.call.ty.shape)
    strides, dilation = operation.ints("strides", 2, 1), operation.ints("dilation", 2, 1)
    windows = sliding(real, (height, width), (kernel_h, kernel_w), strides, dilation)
    rows = windows.reshape(n * height * width, kernel_h * kernel_w, groups, depth).transpose(2, 0, 1, 3)
    columns = centered(weight, operation.quantized("weight_type"), np.float32).reshape(groups, filters // groups, -1)
    sums = rows.reshape(groups, len(rows[0]), -1) @ columns.transpose(0, 2, 1)
    return _biased(sums.transpose(1, 0, 2).reshape(n, height, width, filters), bias)


def _conv2d_transpose(operation: Operation, x: Array, weight: Array, bias: Array | None = None) -> Array:
    """Each input element adds its multiple of the kernel to a window of the output."""
    filters, kernel_h, kernel_w, _ = weight.shape
    (stride_h, stride_w), (top, left, _, _) = operation.ints("strides", 2, 1), operation.ints("padding", 4, 0)
    n, height, width, _ = (int(dim) for dim in operation.call.ty.shape)
    real = centered(x, operation.per_tensor("in_type"), np.float32)
    kernel = centered(weight, operation.quantized("weight_type"), np.float32)
    rows, columns = (x.shape[1] - 1) * stride_h + 1, (x.shape[2] - 1) * stride_w + 1
    full = np.zeros((n, max(rows + kernel_h, top + height), max(columns + kernel_w, left + width), filters), np.float32)
    for i in range(kernel_h):
        for j in range(kernel_w):
            full[:, i : i + rows : stride_h, j : j + columns : stride_w] += real @ kernel[:, i, j].T
    return _biased(full[:, top : top + height, left : left + width], bias)


def _dense(operation: Operation, x: Array, weight: Array, bias: Array | None = None) -> Array:
    real = centered(x, operation.per_tensor("in_type"), np.float32)
    return _biased(real @ centered(weight, operation.quantized("weight_type"), np.float32).T, bias)


def _matmul(operation: Operation, a: Array, b: Array) -> Array:
    lhs, rhs = (centered(x, operation.per_tensor(name), np.float32) for x, name in ((a, "lhs_type"), (b, "rhs_type")))
    return np.asarray(lhs @ rhs)


def _biased(sums: Array, bias: Array | None) -> Array:
    return sums if bias is None else np.asarray(sums + bias)


# Operator of the dialect -> its sums of products in float32, of operands in affine space. What is not here has no
# accumulator: its formula reads the integers that are held.
SIMULATED: Mapping[str, Callable[..., Array]] = {
    "conv2d": _conv2d,
    "conv2d_transpose": _conv2d_transpose,
    "dense": _dense,
    "matmul": _matmul,
}


def _wrapped(sums: Array, bits: int) -> Array:
    """As two's complement of `bits` has them: exact, as only powers of two are divided by and multiplied with."""
    if bits > EXACT_BITS:
        return sums
    whole, half = np.float32(2.0**bits), np.float32(2.0 ** (bits - 1))
    return np.asarray(sums - whole * np.floor((sums + half) / whole))


def _bits_of(sums: Array) -> int:
    low, high = float(sums.min(initial=0)), float(sums.max(initial=0))
    return 1 + max(int(high).bit_length(), int(-low - 1).bit_length() if low < 0 else 0)
