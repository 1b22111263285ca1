"""Operators whose operands are all known while importing, such as positions and masks. They are computed in NumPy.

Each result has at most `_MOST_ELEMENTS` elements, and `Graph` counts the elements of all results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax

from service.compiler.importers.torch.node import Node
from service.compiler.importers.torch.tensors import Tensor
from service.compiler.qnn import ops
from service.compiler.qnn.types import QuantizedType
from service.core.models.arrays import Array

_MOST_ELEMENTS = 1 << 24
# c10/core/ScalarType.h
NUMPY_TYPES: dict[int, str] = {
    0: "uint8",
    1: "int8",
    2: "int16",
    3: "int32",
    4: "int64",
    6: "float32",
    7: "float64",
    11: "bool",
}
_DTYPES = frozenset(NUMPY_TYPES.values())


def dtype_of(node: Node, dtype: Any, default: str) -> str:
    """Returns the element type of a number of TorchScript, or of a name in an exported program."""
    if dtype is None:
        return default
    name = NUMPY_TYPES.get(dtype) if isinstance(dtype, int) and not isinstance(dtype, bool) else dtype
    if not isinstance(name, str) or name not in _DTYPES:
        node.unsupported("has a type that cannot be compiled")
    return "float32" if name == "float64" else name


def _array(node: Node, value: Any) -> Array:
    if isinstance(value, Tensor):
        if value.quantization is not None:
            node.unsupported("has a quantized constant as an operand")
        return value.data
    if not isinstance(value, bool | int | float):
        node.unsupported("has an operand that is not a tensor")
    return np.array(value)


def _limited(node: Node, data: Array) -> Tensor:
    node.require_supported(data.size <= _MOST_ELEMENTS, f"computes {data.size} constants; {_MOST_ELEMENTS} is the most")
    return Tensor(data)


def filled(node: Node, size: Any, value: Any, dtype: str) -> Tensor:
    sizes = node.sizes(size)
    fits = all(each >= 0 for each in sizes) and math.prod(sizes) <= _MOST_ELEMENTS
    node.require_supported(fits, f"has the shape {sizes[:8]}; at most {_MOST_ELEMENTS} constants can be compiled")
    return Tensor(np.full(sizes, value, dtype))


def _filling(value: float) -> Callable[..., Tensor]:
    def convert(node: Node, size: Any, dtype: Any = None, *_: Any, **__: Any) -> Tensor:
        return filled(node, size, value, dtype_of(node, dtype, "float32"))

    return convert


def _full(node: Node, size: Any, fill_value: Any, dtype: Any = None, *_: Any, **__: Any) -> Tensor:
    value = _array(node, fill_value).reshape(-1)[:1]
    node.require(value.size == 1, "has no number to fill with")
    return filled(node, size, value[0], dtype_of(node, dtype, _default(value.dtype)))


def _default(dtype: np.dtype[Any]) -> str:
    return {"f": "float32", "b": "bool"}.get(dtype.kind, "int64")


def _like(value: float) -> Callable[..., Tensor]:
    def convert(node: Node, input: Any, dtype: Any = None, *_: Any, **__: Any) -> Tensor:
        shape, own = (
            (input.data.shape, input.data.dtype.name)
            if isinstance(input, Tensor)
            else (node.tensor(input).shape, node.tensor(input).dtype)
        )
        return filled(node, list(shape), value, dtype_of(node, dtype, own))

    return convert


def _full_like(node: Node, input: Any, fill_value: Any, dtype: Any = None, *_: Any, **__: Any) -> Tensor:
    zeros = _like(0)(node, input, dtype)
    return Tensor(np.full_like(zeros.data, node.real(fill_value)))


def _new(value: float) -> Callable[..., Tensor]:
    def convert(node: Node, input: Any, size: Any, dtype: Any = None, *_: Any, **__: Any) -> Tensor:
        own = input.data.dtype.name if isinstance(input, Tensor) else node.tensor(input).dtype
        return filled(node, size, value, dtype_of(node, dtype, own))

    return convert


def _arange(node: Node, *given: Any, **named: Any) -> Tensor:
    """Converts `arange(end)`, `arange(start, end)` and `arange(start, end, step)`. Four more arguments may follow: the
    type, the layout, the device, and pinned memory.
    """
    own = list(given[:-4]) if len(given) >= 5 else list(given)
    dtype = named.get("dtype", given[-4] if len(given) >= 5 else None)
    numbers = [_array(node, each).item() for each in own] + [
        _array(node, named[name]).item() for name in ("start", "end", "step") if named.get(name) is not None
    ]
    node.require(1 <= len(numbers) <= 3, "has other operands than start, end and step")
    start, end, step = (0, numbers[0], 1) if len(numbers) == 1 else (*numbers[:2], numbers[2] if numbers[2:] else 1)
    node.require(step != 0 and all(math.isfinite(each) for each in numbers), "has a step of 0, or infinite ends")
    count = math.ceil((end - start) / step)
    node.require_supported(0 <= count <= _MOST_ELEMENTS, f"computes {count} constants; {_MOST_ELEMENTS} is the most")
    default = "float32" if any(isinstance(each, float) for each in numbers) else "int64"
    return Tensor((start + np.arange(count) * step).astype(dtype_of(node, dtype, default)))


def _scalar_tensor(node: Node, s: Any, dtype: Any = None, *_: Any, **__: Any) -> Tensor:
    value = _array(node, s)
    return Tensor(value.astype(dtype_of(node, dtype, _default(value.dtype))))


def _tensor(node: Node, data: Any, dtype: Any = None, *_: Any, **__: Any) -> Tensor:
    listed = np.array([_array(node, each).item() for each in data]) if isinstance(data, list) else _array(node, data)
    return _limited(node, listed.astype(dtype_of(node, dtype, _default(listed.dtype))))


def _promoted(node: Node, *values: Any) -> list[Array]:
    """Returns operands of one type; numbers take the type of the constants, unless a real number meets integers."""
    arrays = [_array(node, each) for each in values]
    typed = [each for each in arrays if each.ndim > 0] or arrays
    dtype = np.result_type(*(each.dtype for each in typed))
    if dtype.kind != "f" and any(each.dtype.kind == "f" for each in arrays):
        dtype = np.dtype(np.float32)
    elif dtype.kind == "b" and any(each.dtype.kind == "i" for each in arrays):
        dtype = np.dtype(np.int64)
    return [each.astype(np.float32 if dtype == np.float64 else dtype) for each in arrays]


def _binary(compute: Callable[[Array, Array], Any]) -> Callable[..., Tensor]:
    def convert(node: Node, a: Any, b: Any, *, alpha: Any = 1, rounding_mode: Any = None) -> Tensor:
        if alpha != 1 or rounding_mode is not None:
            node.unsupported("multiplies its second operand, or rounds")
        first, second = _promoted(node, a, b)
        try:
            shape = np.broadcast_shapes(first.shape, second.shape)
        except ValueError:
            node.malformed(f"cannot broadcast {list(first.shape)} and {list(second.shape)}")
        node.require_supported(math.prod(shape) <= _MOST_ELEMENTS, f"computes {math.prod(shape)} constants")
        with np.errstate(all="ignore"):
            return Tensor(np.asarray(compute(first, second)))

    return convert


def _divided(a: Array, b: Array) -> Array:
    return np.asarray(a.astype(np.float32) / b.astype(np.float32))


def _cast(node: Node, input: Any, *options: Any, **named: Any) -> Any:
    x = _array(node, input)
    given = [each for each in (named.get("dtype"), *options[:2]) if each is not None and not isinstance(each, bool)]
    if given and isinstance(given[0], Tensor):
        return Tensor(x.astype(given[0].data.dtype))
    types = [each for each in given if isinstance(each, int) or each in _DTYPES]
    wanted = dtype_of(node, types[0] if types else None, x.dtype.name)
    if x.dtype == np.int8 and wanted == "float32" and x.ndim == 2:
        # weights that the model scales after the product: a dequantization with the scale 1, which keeps their bits
        weights = relax.const(np.ascontiguousarray(x), "int8")
        return node.value(ops.dequantize(weights, QuantizedType("int8", (1.0,), (0,))), None)
    return Tensor(x.astype(wanted))


def _type_as(node: Node, input: Any, other: Any) -> Tensor:
    return Tensor(_array(node, input).astype(_array(node, other).dtype))


def _unary(compute: Callable[[Array], Any]) -> Callable[..., Tensor]:
    def convert(node: Node, input: Any) -> Tensor:
        x = _array(node, input)
        with np.errstate(all="ignore"):
            return Tensor(np.asarray(compute(x)).astype(x.dtype))

    return convert


def _dequantize_affine(
    node: Node,
    input: Any,
    block_size: Any,
    scale: Any,
    zero_point: Any,
    input_dtype: Any = None,
    quant_min: Any = None,
    quant_max: Any = None,
    output_dtype: Any = None,
) -> Tensor:
    """Computes (stored - zero point) * scale of each block of constants (torchao/quantization/quant_primitives.py)."""
    x, blocks = _array(node, input), node.sizes(block_size)
    fits = len(blocks) == x.ndim and all(b > 0 and n % b == 0 for n, b in zip(x.shape, blocks, strict=True))
    node.require(fits, f"has blocks {blocks[:8]} for the shape {list(x.shape)[:8]}")
    counts = [size // block for size, block in zip(x.shape, blocks, strict=True)]
    apart = [each for pair in zip(counts, blocks, strict=True) for each in pair]
    ones = [each for count in counts for each in (count, 1)]
    stored = x.reshape(apart).astype(np.float32)
    if zero_point is not None:
        stored = stored - _array(node, zero_point).astype(np.float32).reshape(ones)
    return _limited(node, (stored * _array(node, scale).astype(np.float32).reshape(ones)).reshape(x.shape))


def _t(node: Node, input: Any) -> Any:
    return Tensor(np.ascontiguousarray(_array(node, input).T))


def _same(_: Node, input: Any, *__: Any, **___: Any) -> Any:
    return input


def _not(node: Node, input: Any) -> Tensor:
    return Tensor(np.logical_not(_array(node, input)))


def _where(node: Node, condition: Any, input: Any, other: Any) -> Tensor:
    return Tensor(np.where(_array(node, condition), *_promoted(node, input, other)))


def _masked_fill(node: Node, input: Any, mask: Any, value: Any) -> Tensor:
    x = _array(node, input)
    return Tensor(np.where(_array(node, mask), np.array(node_number(node, value)).astype(x.dtype), x))


def node_number(node: Node, value: Any) -> float:
    """Returns a number, which may be infinite."""
    number: float = _array(node, value).item()
    return number


def _join(node: Node, tensors: Sequence[Any], dim: Any, join: Callable[..., Array]) -> Tensor:
    parts = [_array(node, each) for each in node.parts(tensors)]
    node.require_supported(sum(part.size for part in parts) <= _MOST_ELEMENTS, "joins too many constants")
    return Tensor(join(parts, node.integer(dim)))


def _cat(node: Node, tensors: Any, dim: Any = 0) -> Tensor:
    return _join(node, tensors, dim, np.concatenate)


def _stack(node: Node, tensors: Any, dim: Any = 0) -> Tensor:
    return _join(node, tensors, dim, np.stack)


# These rules take precedence if all tensors among an operator's operands are constants. They raise `ValueError` and
# the like for operands that do not fit; `Graph` reports those.
FOLDED: dict[str, Callable[..., Any]] = {
    "aten::alias": _same,
    "aten::clone": _same,
    "aten::contiguous": _same,
    "aten::detach": _same,
    "aten::abs": _unary(np.abs),
    "aten::add": _binary(np.add),
    "aten::bitwise_and": _binary(np.logical_and),
    "aten::bitwise_not": _not,
    "aten::bitwise_or": _binary(np.logical_or),
    "aten::cat": _cat,
    "aten::div": _binary(_divided),
    "aten::eq": _binary(np.equal),
    "aten::exp": _unary(np.exp),
    "aten::ge": _binary(np.greater_equal),
    "aten::gt": _binary(np.greater),
    "aten::le": _binary(np.less_equal),
    "aten::log": _unary(np.log),
    "aten::logical_and": _binary(np.logical_and),
    "aten::logical_not": _not,
    "aten::logical_or": _binary(np.logical_or),
    "aten::lt": _binary(np.less),
    "aten::masked_fill": _masked_fill,
    "aten::maximum": _binary(np.maximum),
    "aten::minimum": _binary(np.minimum),
    "aten::mul": _binary(np.multiply),
    "aten::ne": _binary(np.not_equal),
    "aten::neg": _unary(np.negative),
    "aten::stack": _stack,
    "aten::sub": _binary(np.subtract),
    "aten::t": _t,
    "aten::to": _cast,
    "aten::_to_copy": _cast,
    "aten::type_as": _type_as,
    "aten::where": _where,
    "torchao::dequantize_affine": _dequantize_affine,
}
# Operators that make constants.
RULES: dict[str, Callable[..., Any]] = {
    "aten::arange": _arange,
    "aten::full": _full,
    "aten::full_like": _full_like,
    "aten::new_full": lambda node, input, size, fill_value, *_, **__: _full(node, size, fill_value),
    "aten::new_ones": _new(1),
    "aten::new_zeros": _new(0),
    "aten::ones": _filling(1),
    "aten::ones_like": _like(1),
    "aten::scalar_tensor": _scalar_tensor,
    "aten::tensor": _tensor,
    "aten::zeros": _filling(0),
    "aten::zeros_like": _like(0),
}
