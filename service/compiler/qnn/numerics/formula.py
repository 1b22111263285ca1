"""The interface of a formula: one operator's arithmetic, implemented twice.

`evaluate` is the oracle. It computes on wide integers in NumPy and transcribes the source that its docstring cites.
`lower` emits the same arithmetic as Relax, for the compiler. Neither uses the other's code. The tests check that both
give equal results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from tvm import relax, te, tirx

from service.compiler.qnn.types import QuantizedType
from service.core.models.arrays import Array

Scalar = Any  # a tirx.PrimExpr
Pointwise = Callable[..., Scalar]

OPAQUE = 8  # relax.transform.OpPatternKind: never fused


class Formula(Protocol):
    """The arithmetic of one operator in one numerics mode."""

    @property
    def summary(self) -> str:
        """The formula and its rounding in one line, as the mode's table prints it."""

    @property
    def evaluate(self) -> Callable[..., Array]:
        """Computes the operation; the arguments are (operation, *operands). Takes the operands' stored values and
        returns the result's stored values.
        """

    @property
    def lower(self) -> Callable[..., relax.Expr]:
        """Emits Relax without QNN operators that computes the same as `evaluate`; the arguments are (operation,
        builder, *operands).
        """


def all_values(kind: QuantizedType) -> Array:
    """Returns every value that a tensor of `kind` can store, in ascending order, in the dtype of the storage."""
    limits = np.iinfo(kind.dtype)
    return np.arange(limits.min, limits.max + 1).astype(kind.dtype)


def store(values: Array, quantized: QuantizedType) -> Array:
    """Clamps wide integers to the storage bounds of `quantized` and converts them to its storage."""
    return np.clip(values, quantized.min, quantized.max).astype(quantized.dtype)


def clamped(value: Scalar, quantized: QuantizedType) -> Scalar:
    """`store` of an int32 value, in tensor IR."""
    low, high = (tirx.const(bound, "int32") for bound in (quantized.min, quantized.max))
    return tirx.max(tirx.min(value, high), low).astype(quantized.dtype)


class ChannelConstant:
    """A scalar, or one value for each index of an axis, in tensor IR: an immediate, or a load from an operand."""

    def __init__(self, values: Array, axis: int | None) -> None:
        uniform = axis is None or bool((values == values.flat[0]).all())
        self.axis = None if uniform else axis
        self.values = values.reshape(-1)
        self.operands = (
            [] if uniform else [relax.const(self.values, str(self.values.dtype))]
        )  # without the dtype, int64 would become int32

    def at(self, tensors: Sequence[te.Tensor], index: Sequence[Any]) -> Scalar:
        if self.axis is None:
            return tirx.const(self.values[0].item(), str(self.values.dtype))
        (tensor,) = tensors
        return tensor[index[self.axis]]


class BlockConstant:
    """One value for each block of a tensor of type `quantized`, in tensor IR."""

    def __init__(self, values: Array, quantized: QuantizedType) -> None:
        assert quantized.blocks is not None
        self.sizes = dict(quantized.blocks)
        self.operands = [relax.const(values.reshape(quantized.grid), str(values.dtype))]

    def at(self, tensors: Sequence[te.Tensor], index: Sequence[Any]) -> Scalar:
        (tensor,) = tensors
        return tensor(*(i // self.sizes[axis] if axis in self.sizes else 0 for axis, i in enumerate(index)))


class Table:
    """An array that is read as a whole to compute any element."""

    def __init__(self, values: Array) -> None:
        self.operands = [relax.const(values, str(values.dtype))]

    def at(self, tensors: Sequence[te.Tensor], _index: Sequence[Any]) -> te.Tensor:
        (tensor,) = tensors
        return tensor


class Index:
    """The index of an element: one number for each axis."""

    operands: tuple[relax.Expr, ...] = ()

    def at(self, _tensors: Sequence[te.Tensor], index: Sequence[Any]) -> Sequence[Any]:
        return index


Constant = ChannelConstant | BlockConstant | Table | Index


def parameter(values: Sequence[float] | Sequence[int], dtype: str, quantized: QuantizedType) -> Constant:
    """Returns a constant from which each element of a tensor of type `quantized` reads its own value. `values` are
    scales, zero points, or values derived from them.
    """
    array = np.array(values, dtype)
    return ChannelConstant(array, quantized.axis) if quantized.blocks is None else BlockConstant(array, quantized)


def pointwise(
    builder: relax.BlockBuilder,
    name: str,
    function: Pointwise,
    operands: Sequence[relax.Expr],
    constants: Sequence[Constant] = (),
    *,
    alone: bool = False,
) -> relax.Expr:
    """Computes `function(*elements, *constants)` at every index; operands broadcast as NumPy does.

    Args:
        alone: true if the result must never be fused with its readers; LLVM could otherwise contract a product with
            their sum.
    """

    def compute(*tensors: te.Tensor) -> te.Tensor:
        data, rest = tensors[: len(operands)], list(tensors[len(operands) :])
        rank = max(len(tensor.shape) for tensor in data)
        shape = [_broadcast_dim(data, rank, axis) for axis in range(rank)]
        taken = [[rest.pop(0) for _ in constant.operands] for constant in constants]
        return te.compute(
            shape,
            lambda *index: function(
                *(tensor(*_broadcast_index(tensor, shape, index)) for tensor in data),
                *(constant.at(loads, index) for constant, loads in zip(constants, taken, strict=True)),
            ),
            name=name,
        )

    loads = [operand for constant in constants for operand in constant.operands]
    attrs = {"op_pattern": OPAQUE} if alone else None
    return builder.call_te(compute, *operands, *loads, primfunc_name_hint=name, primfunc_attrs=attrs)


def _broadcast_dim(tensors: Sequence[te.Tensor], rank: int, axis: int) -> int:
    dims = [int(t.shape[axis - rank + len(t.shape)]) for t in tensors if axis - rank + len(t.shape) >= 0]
    return next((dim for dim in dims if dim != 1), 1)


def _broadcast_index(tensor: te.Tensor, shape: Sequence[int], index: Sequence[Any]) -> list[Any]:
    """Returns the index to load from. On a dimension of 1, the index stays unless the dimension is repeated, because
    FuseOps treats `x[i, j]` as elementwise, but not `x[0, j]`.
    """
    tail = slice(len(index) - len(tensor.shape), None)
    return [
        0 if int(dim) == 1 != extent else i
        for dim, extent, i in zip(tensor.shape, shape[tail], index[tail], strict=True)
    ]
