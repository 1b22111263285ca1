"""Layers on real values, which models of timm and transformers contain between quantized layers: normalizations,
activations, products, embeddings and attention. These layers are computed in float32 (`importers/real.py`); PyTorch's
results differ by a few units in the last place.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from service.compiler.importers import real
from service.compiler.importers.builder import movement
from service.compiler.importers.real import Real
from service.compiler.importers.torch.node import Node
from service.compiler.importers.torch.operators.constants import dtype_of
from service.compiler.importers.torch.operators.movement import move_elements
from service.compiler.importers.torch.operators.real import function, operand
from service.compiler.importers.torch.tensors import Tensor
from service.compiler.importers.torch.values import Value
from service.compiler.qnn import ops
from service.compiler.qnn.coverage import INSIDE
from service.compiler.qnn.graph import shape_of
from service.compiler.qnn.types import QuantizedType

_LARGEST_MASK = 1 << 24


def _gelu(node: Node, input: Any, *, approximate: Any = "none") -> Value:
    node.require(approximate in ("none", "tanh"), "has an approximation other than none or tanh")
    return node.value(real.gelu(Real(node.emit, operand(node, input)), approximate=approximate == "tanh"), None)


def _elu(node: Node, input: Any, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Value:
    node.require_supported(node.real(scale) == node.real(input_scale) == 1, "has scales other than 1")
    of = real.in_float64(lambda wide: real.elu(wide, node.real(alpha)))
    return node.value(of(Real(node.emit, operand(node, input))), None)


def _leaky_relu(node: Node, input: Any, negative_slope: Any = 0.01) -> Value:
    x, slope = operand(node, input), relax.const(np.array(node.real(negative_slope), np.float32))
    return node.value(real.sloped(Real(node.emit, x), slope), None)


def _power(node: Node, input: Any, exponent: Any) -> Value:
    power, x = node.real(exponent), operand(node, input)
    if power == 2:
        return node.value(relax.op.multiply(x, x), None)
    made = Real(node.emit, x)
    return node.value(made.in_float64(lambda wide: relax.op.power(wide, relax.const(power, "float64")), x), None)


# Types whose sums are computed in integers.
INTEGERS = ("bool", "uint8", "int8", "int16", "int32", "int64")


def _integer_product(node: Node, input: Any, mat2: Any) -> Value:
    """Converts `_int_mm`: int32 products of matrices of 8 bits."""
    lhs, rhs = node.tensor(input), node.tensor(mat2)
    fits = lhs.dtype in ("int8", "uint8") and rhs.dtype == "int8" and len(lhs.shape) == len(rhs.shape) == 2
    node.require_supported(fits, f"multiplies {lhs.dtype} by {rhs.dtype}")
    types = (QuantizedType(each.dtype, (1.0,)) for each in (lhs, rhs))
    return node.value(ops.matmul(lhs.expr, rhs.expr, *types), None)


def _reduced(node: Node, input: Any, dim: Any = None, keepdim: Any = False, *, dtype: Any = None) -> Value:
    """Converts the sum. A sum of integers is int64, unless `dtype` gives another type."""
    if (whole := node.tensor(input)).quantized is None and whole.dtype in INTEGERS:
        wanted = dtype_of(node, dtype, "int64")
        axes = node.reduced_axes(None if dim == [] else dim, len(whole.shape))
        wide = node.emit(relax.op.astype(whole.expr, wanted), "wide")
        return node.value(relax.op.sum(wide, axis=axes, keepdims=node.flag(keepdim)), None)
    x = operand(node, input)
    rank = len(shape_of(x))
    axes = node.reduced_axes(None if dim == [] else dim, rank)
    return node.value(Real(node.emit, x).total(x, axes, keepdims=node.flag(keepdim)), None)


def _extreme(make: Callable[..., relax.Call]) -> Callable[..., Value]:
    def convert(node: Node, input: Any, dim: Any = (), keepdim: Any = False) -> Value:
        x = operand(node, input)
        rank = len(shape_of(x))
        axes = node.reduced_axes(node.sizes(dim) or None, rank)
        return node.value(make(x, axis=axes, keepdims=node.flag(keepdim)), None)

    return convert


# -- normalizations


def _batch_norm(
    node: Node, input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, *rest: Any, **named: Any
) -> Value:
    """Converts a normalization with running statistics. `rest` contains the arguments training, momentum, eps and
    cudnn_enabled.
    """
    given = dict(zip(("training", "momentum", "eps", "cudnn_enabled"), rest, strict=False)) | named
    if node.flag(given.get("training", False)):
        node.unsupported("is in training mode", hint="call model.eval() before the model is saved")
    x = operand(node, input)
    shape = shape_of(x)
    node.require(len(shape) >= 2, f"has an input of shape {list(shape)}, not [N, C, …]")
    rows = [_row(node, each, shape[1]) for each in (weight, bias, running_mean, running_var)]
    scale, move, center, variance = (
        np.full(shape[1], default) if row is None else row
        for row, default in zip(rows, (1.0, 0.0, 0.0, 1.0), strict=True)
    )
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + node.real(given.get("eps", 1e-5)))
        addend = move - center * factor
    return _scaled(node, x, *_along_channels(len(shape), factor, addend))


def _along_channels(rank: int, *rows: np.ndarray[Any, Any] | None) -> list[relax.Expr | None]:
    """Returns each row `[C]`, in float32, reshaped so that it broadcasts along the second of `rank` axes."""
    ones = [1] * (rank - 2)
    return [None if row is None else relax.const(row.astype(np.float32).reshape(-1, *ones)) for row in rows]


def _row(node: Node, value: Any, size: int) -> np.ndarray[Any, Any] | None:
    if value is None:
        return None
    if not isinstance(value, Tensor):
        node.unsupported("computes its parameters at run time, but they must be constant")
    node.require(value.data.shape == (size,), f"has parameters of shape {list(value.data.shape)} for {size} channels")
    return value.data.astype(np.float64)


def _layer_norm(
    node: Node, input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: Any = 1e-5, *_: Any
) -> Value:
    x = operand(node, input)
    made = real.normalize(Real(node.emit, x), _last(node, x, normalized_shape), node.real(eps))
    normalized = node.emit(made, INSIDE)
    return _scaled(node, normalized, *(None if each is None else operand(node, each) for each in (weight, bias)))


def _rms_norm(node: Node, input: Any, normalized_shape: Any, weight: Any = None, eps: Any = None) -> Value:
    x = operand(node, input)
    epsilon = float(np.finfo(np.float32).eps) if eps is None else node.real(eps)
    made = real.rms_normalize(Real(node.emit, x), _last(node, x, normalized_shape), epsilon)
    normalized = node.emit(made, INSIDE)
    return _scaled(node, normalized, None if weight is None else operand(node, weight), None)


def _last(node: Node, x: relax.Expr, normalized_shape: Any) -> list[int]:
    shape, own = shape_of(x), node.sizes(normalized_shape)
    node.require(
        0 < len(own) <= len(shape) and list(shape[-len(own) :]) == own, f"cannot normalize {own} of shape {list(shape)}"
    )
    return list(range(len(shape) - len(own), len(shape)))


def _scaled(node: Node, x: relax.Var, weight: relax.Expr | None, bias: relax.Expr | None) -> Value:
    """Returns `x` times `weight`, plus `bias`."""
    if weight is not None:
        x = node.emit(relax.op.multiply(x, weight), INSIDE if bias is not None else "")
    return Value(x if bias is None else node.emit(relax.op.add(x, bias)))


def group_norm(
    node: Node, input: Any, num_groups: Any, weight: Any = None, bias: Any = None, eps: Any = 1e-5, *_: Any
) -> Value:
    x, groups = operand(node, input), node.integer(num_groups, 1)
    shape = shape_of(x)
    node.require(
        len(shape) >= 2 and shape[1] % groups == 0,
        f"cannot divide the channels of shape {list(shape)} into {groups} groups",
    )
    split = node.emit(relax.op.reshape(x, (shape[0], groups, math.prod(shape[1:]) // groups)), "groups")
    normalized = node.emit(real.normalize(Real(node.emit, split), [2], node.real(eps)), INSIDE)
    rows = [_row(node, each, shape[1]) for each in (weight, bias)]
    whole = node.emit(relax.op.reshape(normalized, shape), "whole")
    return _scaled(node, whole, *_along_channels(len(shape), *rows))


def _instance_norm(
    node: Node,
    input: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    use_input_stats: Any,
    momentum: Any,
    eps: Any,
    *_: Any,
) -> Value:
    """Converts a normalization of each channel of each sample; or with running statistics, as a batch normalization."""
    if not node.flag(use_input_stats):
        return _batch_norm(node, input, weight, bias, running_mean, running_var, False, momentum, eps)
    x = operand(node, input)
    node.require(len(shape_of(x)) >= 3, f"has an input of shape {list(shape_of(x))}, not [N, C, L, …]")
    return group_norm(node, input, shape_of(x)[1], weight, bias, eps)


def _quantized_layer_norm(
    node: Node,
    input: Any,
    normalized_shape: Any,
    weight: Any,
    bias: Any,
    eps: Any,
    output_scale: Any,
    output_zero_point: Any,
) -> Value:
    """Converts a normalization of stored values. The normalization is computed on real values, so its results are
    within one step of PyTorch's (quantized_layer_norm).
    """
    x, in_type = node.activation(input)
    made = node.per_tensor(in_type.storage, output_scale, output_zero_point)
    normalized = _layer_norm(
        node, node.value(ops.dequantize(x.expr, in_type), None), normalized_shape, weight, bias, eps
    )
    return node.value(ops.quantize(normalized.expr, made), made)


# -- products


def _matmul(node: Node, input: Any, other: Any) -> Value:
    """Multiplies matrices, or batches of them; operands with one dimension are not supported."""
    return node.value(ops.real_matmul(operand(node, input), operand(node, other)), None)


def _linear(node: Node, input: Any, weight: Any, bias: Any = None) -> Value:
    """Multiplies rows `[…, K]` by `[O, K]`."""
    columns = node.emit(relax.op.permute_dims(operand(node, weight), [1, 0]), "columns")
    return node.value(
        ops.real_matmul(operand(node, input), columns, None if bias is None else operand(node, bias)), None
    )


def _attention(
    node: Node,
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: Any = 0.0,
    is_causal: Any = False,
    *,
    scale: Any = None,
    enable_gqa: Any = False,
) -> Value:
    """Converts softmax(scale * query * key' + mask) * value, of `[…, tokens, size]`. In a boolean mask, false hides a
    key.
    """
    if node.flag(enable_gqa) or node.real(dropout_p):
        node.unsupported("shares the heads of keys, or drops elements at random")
    queries, keys, values = (operand(node, each) for each in (query, key, value))
    shape, rank = shape_of(queries), len(shape_of(keys))
    node.require(rank == len(shape) >= 3, f"has queries of shape {list(shape)} and keys with {rank} dimensions")
    turned = node.emit(relax.op.permute_dims(keys, [*range(rank - 2), rank - 1, rank - 2]), "turned")
    made = Real(node.emit, queries)
    scores = made(ops.real_matmul(queries, turned))
    made.x = made.apply(relax.op.multiply, scores, 1 / math.sqrt(shape[-1]) if scale is None else node.real(scale))
    for mask in _masks(node, attn_mask, is_causal, shape[-2], shape_of(keys)[-2]):
        made.x = made.apply(relax.op.add, made.x, mask)
    return node.value(ops.real_matmul(made(real.softmax(made, rank - 1)), values), None)


def _masks(node: Node, attn_mask: Any, is_causal: Any, tokens: int, length: int) -> list[relax.Expr]:
    added = []
    if attn_mask is not None:
        given = _constant_or_value(node, attn_mask)
        if str(given.ty.dtype) == "bool":
            nothing, all_ = (relax.const(np.array(each, np.float32)) for each in (0.0, -math.inf))
            added.append(node.emit(relax.op.where(given, nothing, all_), "hidden"))
        else:
            added.append(given)
    if node.flag(is_causal):
        node.require(tokens * length <= _LARGEST_MASK, f"has a mask of {tokens} by {length}, which is too large")
        hidden = np.where(np.arange(length)[np.newaxis] > np.arange(tokens)[:, np.newaxis], -np.inf, 0.0)
        added.append(relax.const(hidden.astype(np.float32)))
    return added


def _constant_or_value(node: Node, value: Any) -> relax.Expr:
    if isinstance(value, Tensor):
        return node.emit(relax.const(np.ascontiguousarray(value.data), value.data.dtype.name), "constant")
    return node.tensor(value).expr


def _embedding(node: Node, weight: Any, indices: Any, *_: Any, **__: Any) -> Value:
    table, positions = operand(node, weight), _constant_or_value(node, indices)
    node.require(
        str(positions.ty.dtype) in ("int32", "int64"), f"has indices of {positions.ty.dtype}, not int32 or int64"
    )
    return node.value(relax.op.take(table, positions, 0, mode="clip"), None)


# -- movement


def _expand(node: Node, input: Any, size: Any, *, implicit: Any = False) -> Value:
    """Converts `aten::expand`. A size of -1 keeps the operand's own size, and additional sizes in front add axes."""
    x, sizes = node.tensor(input), node.sizes(size)
    added = len(sizes) - len(x.shape)
    own = [1] * added + list(x.shape)
    shape = [old if new == -1 else new for old, new in zip(own, sizes, strict=added >= 0)]
    return move_elements(node, x, movement.broadcast, shape)


_SILU = function(real.silu)
# Rules for operands that are not quantized, like `real.RULES`. `ANY` contains the rules for all operands.
RULES: dict[str, Callable[..., Value]] = {
    "aten::amax": _extreme(relax.op.max),
    "aten::amin": _extreme(relax.op.min),
    "aten::batch_norm": _batch_norm,
    "aten::bmm": _matmul,
    "aten::cos": function(real.of_relax(relax.op.cos)),
    "aten::elu": _elu,
    "aten::embedding": _embedding,
    "aten::erf": function(real.of_float32("erf")),
    "aten::exp": function(real.of_float32("exp")),
    "aten::gelu": _gelu,
    "aten::gelu_": _gelu,
    "aten::group_norm": group_norm,
    "aten::instance_norm": _instance_norm,
    "aten::layer_norm": _layer_norm,
    "aten::leaky_relu": _leaky_relu,
    "aten::linear": _linear,
    "aten::log": function(real.of_relax(relax.op.log)),
    "aten::matmul": _matmul,
    "aten::_int_mm": _integer_product,
    "aten::mm": _matmul,
    "aten::pow": _power,
    "aten::rms_norm": _rms_norm,
    "aten::rsqrt": function(real.rsqrt),
    "aten::scaled_dot_product_attention": _attention,
    "aten::silu_": _SILU,
    "aten::sin": function(real.of_relax(relax.op.sin)),
    "aten::sqrt": function(lambda made: relax.op.sqrt(made.x)),
    "aten::sum": _reduced,
}
ANY: dict[str, Callable[..., Value]] = {"aten::expand": _expand, "quantized::layer_norm": _quantized_layer_norm}
