"""Fused operators of an exported program (`exported.fusing`). They have the arguments of the float operators.
Activations are stored values, and the type of the output is an additional argument.

`clamp` contains the real bounds of the activations after the operator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax

from service.compiler.importers.torch import packed
from service.compiler.importers.torch.node import Node
from service.compiler.importers.torch.operators import accumulating, joining, pooling, transposing
from service.compiler.importers.torch.operators.elementwise import bounded
from service.compiler.importers.torch.tensors import Tensor
from service.compiler.importers.torch.values import Value
from service.compiler.qnn import ops
from service.compiler.qnn.types import QuantizedType

Clamp = tuple[float, float]


def _convolution(positions: int) -> Callable[..., Value]:
    """Returns the rule of a convolution of images, or of rows (`positions` 1), which are images of one row."""

    def convert(
        node: Node,
        input: Any,
        weight: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: Any = 1,
        *,
        out_type: QuantizedType | None,
        clamp: Clamp,
    ) -> Value:
        if isinstance(padding, str):
            node.unsupported(f"has padding {padding[:20]!a}; only numbers can be compiled")
        if positions > 1:
            steps, around, apart = (_spread(node, each, positions) for each in (stride, padding, dilation))
            count = node.integer(groups, 1)
            layer = packed.convolution(weight, bias, steps, around, apart, count, rank=positions + 2)
        else:
            fits = isinstance(weight, Tensor) and weight.data.ndim == 3
            node.require(fits, "has weights that are not constants with 3 dimensions")
            layer = packed.conv1d(weight, bias, stride, padding, dilation, node.integer(groups, 1))
        return accumulating.convolved(node, input, layer, _bounded(node, out_type, clamp))

    return convert


def _transposed(positions: int) -> Callable[..., Value]:
    """Returns the rule of a transposed convolution of rows, images or volumes (`positions` 1, 2 or 3). Weights are
    `[C, O / groups, …]`, with a scale for each of O / groups.
    """

    def convert(
        node: Node,
        input: Any,
        weight: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: Any = 1,
        dilation: Any = 1,
        *,
        out_type: QuantizedType | None,
        clamp: Clamp,
    ) -> Value:
        fits = isinstance(weight, Tensor) and weight.data.ndim == positions + 2
        node.require(fits, f"has weights that are not constants with {positions + 2} dimensions")
        steps, around, more, apart = (
            _spread(node, each, positions) for each in (stride, padding, output_padding, dilation)
        )
        count = node.integer(groups, 1)
        if positions == 1:
            layer = packed.conv1d(weight, bias, steps, around, apart, count, output_padding=more)
        else:
            rank = positions + 2
            layer = packed.convolution(weight, bias, steps, around, apart, count, rank=rank, output_padding=more)
        return transposing.transposed(node, node.tensor(input), layer, _bounded(node, out_type, clamp))

    return convert


def _spread(node: Node, value: Any, count: int) -> list[int]:
    """Returns a number for each dimension. One number applies to all of them."""
    items = node.sizes(value)
    return items * count if len(items) == 1 else items


def _linear(
    node: Node, input: Any, weight: Any, bias: Any = None, *, out_type: QuantizedType | None, clamp: Clamp
) -> Value:
    return accumulating.multiplied(node, input, packed.linear(weight, bias), _bounded(node, out_type, clamp))


def _binary(operator: Callable[..., relax.Call]) -> Callable[..., Value]:
    def convert(node: Node, a: Any, b: Any, *, out_type: QuantizedType, clamp: Clamp, alpha: Any = 1) -> Value:
        (lhs, lhs_type), (rhs, rhs_type) = node.activation(a), node.activation(b)
        made = _bounded(node, out_type, clamp)
        return node.value(operator(lhs.expr, rhs.expr, lhs_type, rhs_type, made), made)

    return convert


def _unary(function: str) -> Callable[..., Value]:
    def convert(node: Node, input: Any, *, out_type: QuantizedType, clamp: Clamp) -> Value:
        return _applied(node, function, input, out_type, clamp)

    return convert


def _leaky_relu(node: Node, input: Any, negative_slope: Any = 0.01, *, out_type: QuantizedType, clamp: Clamp) -> Value:
    return _applied(node, "leaky_relu", input, out_type, clamp, alpha=node.real(negative_slope))


def _elu(
    node: Node,
    input: Any,
    alpha: Any = 1,
    scale: Any = 1,
    input_scale: Any = 1,
    *,
    out_type: QuantizedType,
    clamp: Clamp,
) -> Value:
    if {node.real(each) for each in (alpha, scale, input_scale)} != {1.0}:
        node.unsupported("has scales other than 1")
    return _applied(node, "elu", input, out_type, clamp)


def _applied(
    node: Node, function: str, input: Any, out_type: QuantizedType, clamp: Clamp, **attrs: float | bool
) -> Value:
    x, in_type = node.activation(input)
    made = _bounded(node, out_type, clamp)
    return node.value(ops.unary(function, x.expr, in_type, made, **attrs), made)


def _requantize(node: Node, input: Any, *, out_type: QuantizedType, clamp: Clamp) -> Value:
    x, in_type = node.activation(input)
    made = _bounded(node, out_type, clamp)
    if made == in_type:
        return x
    return node.value(ops.requantize(x.expr, in_type, made), made)


def _cat(node: Node, tensors: Any, dim: Any = 0, *, out_type: QuantizedType, clamp: Clamp) -> Value:
    return joining.join(
        node, [node.activation(part) for part in node.parts(tensors)], dim, _bounded(node, out_type, clamp)
    )


def _mean(
    node: Node,
    input: Any,
    dim: Any = None,
    keepdim: Any = False,
    *,
    dtype: Any = None,
    out_type: QuantizedType,
    clamp: Clamp,
) -> Value:
    return pooling.averaged(node, input, dim, keepdim, _bounded(node, out_type, clamp))


def _adaptive_avg_pool2d(node: Node, input: Any, output_size: Any, *, out_type: QuantizedType, clamp: Clamp) -> Value:
    return pooling.adapted(node, input, output_size, _bounded(node, out_type, clamp))


def _avg_pool2d(node: Node, input: Any, *window: Any, out_type: QuantizedType, clamp: Clamp, **named: Any) -> Value:
    return pooling.pooled(node, input, _bounded(node, out_type, clamp), pooling.Pool.of(node, *window, **named))


def _bounded(node: Node, out_type: Any, clamp: Clamp) -> Any:
    """Returns the output's type clamped by the activation, or None if the output is real."""
    return None if out_type is None else bounded(node, out_type, *clamp)


RULES = {
    "octet::adaptive_avg_pool2d": _adaptive_avg_pool2d,
    "octet::add": _binary(ops.add),
    "octet::avg_pool2d": _avg_pool2d,
    "octet::cat": _cat,
    "octet::conv1d": _convolution(1),
    "octet::conv2d": _convolution(2),
    "octet::conv3d": _convolution(3),
    **{f"octet::conv_transpose{count}d": _transposed(count) for count in (1, 2, 3)},
    "octet::elu": _elu,
    "octet::hardsigmoid": _unary("hard_sigmoid"),
    "octet::hardswish": _unary("hard_swish"),
    "octet::leaky_relu": _leaky_relu,
    "octet::linear": _linear,
    "octet::mean": _mean,
    "octet::mul": _binary(ops.mul),
    "octet::requantize": _requantize,
    "octet::sigmoid": _unary("logistic"),
    "octet::silu": _unary("silu"),
    "octet::tanh": _unary("tanh"),
}
