"""Cross-layer equalization: scales the channels of a layer, and scales the next layer's weights inversely.

Nagel et al., Data-Free Quantization Through Weight Equalization and Bias Correction, arXiv:1906.04721, section 4.1: if
everything between two layers is a function with f(s x) = s f(x) for s > 0, then W₁ / s and W₂ s compute the same
result. With s = sqrt(r₁ / r₂) for each channel, the channel's weights have the same range r in both layers, so that no
channel loses precision because another channel of the layer has a larger range.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from service.core.models.arrays import Array
from service.quantize.file.document import Document, Node, rewire

SWEEPS = 20  # limit of the passes over all pairs; scaling one pair changes the adjacent pairs, so one pass is too few
_SETTLED = 0.01  # the passes stop when no factor differs from 1 by more than this
# Operators f with f(s x) = s f(x) for s > 0. Pools also keep the channels of `[N, C, …]`.
_ACTIVATIONS = ("LeakyRelu", "Relu")
_POOLS = ("AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool")
_LAYERS = ("Conv", "Gemm", "MatMul")


@dataclass
class _Parameters:
    """The parameters of a layer during equalization.

    Attributes:
        weights: the weights in the layout of the file.
        bias: `[channels]`, or None.
    """

    weights: Array
    bias: Array | None


def equalize(document: Document) -> int:
    """Equalizes each pair of a Conv, Gemm or MatMul and the layer that reads its result, if nothing else reads this
    result. ReLU, LeakyReLU, pools or Flatten may be between the two. The model still computes the same function, up to
    float32 rounding.

    Returns:
        The number of pairs that were equalized.
    """
    readers, uses = document.readers(), Counter(name for node in document.nodes for name in node.inputs)
    layers = [node for node in document.nodes if _is_layer(document, node, uses)]
    found = [(node, _next_layer(document, readers, uses, node)) for node in layers]
    pairs = [(first, second) for first, second in found if second in layers and _fits(document, first, second)]
    parameters = {node: _read_parameters(document, node) for pair in pairs for node in pair if node is not None}
    for _ in range(SWEEPS):
        if all(_scale(first, second, parameters) <= _SETTLED for first, second in pairs if second is not None):
            break
    made = {node: _write_parameters(document, node, parts) for node, parts in parameters.items()}
    document.nodes = [made.get(node, node) for node in document.nodes]
    return len(pairs)


def _is_layer(document: Document, node: Node, uses: Mapping[str, int]) -> bool:
    """Returns true if `node` is a layer with constant weights that no other operator uses."""
    attributes = node.attributes
    if node.op_type not in _LAYERS or any(uses[name] > 1 for name in node.inputs[1:] if name):
        return False
    if attributes.get("alpha", 1.0) != 1.0 or attributes.get("beta", 1.0) != 1.0 or attributes.get("transA", 0):
        return False
    known = [document.constants.get(name) for name in node.inputs[1:] if name]
    if any(each is None or each.dtype != np.float32 or not np.isfinite(each).all() for each in known):
        return False
    parameters = _read_parameters(document, node)
    fits = parameters.weights.ndim > 2 if node.op_type == "Conv" else parameters.weights.ndim == 2
    return (
        fits
        and parameters.weights.size > 0
        and (parameters.bias is None or parameters.bias.shape == (_channels(node, parameters.weights),))
    )


def _next_layer(
    document: Document, readers: Mapping[str, list[Node]], uses: Mapping[str, int], node: Node
) -> Node | None:
    """Returns the layer that reads the result of `node` channel by channel, if it is the only reader; otherwise
    None.
    """
    is_picture, name = node.op_type == "Conv", node.outputs[0]
    is_conv = is_picture
    while name not in document.outputs and uses.get(name, 0) == 1:
        (reader,) = readers[name]
        if reader.inputs[0] != name or any(reader.outputs[1:]):
            return None
        if reader.op_type in _LAYERS:
            is_flat = is_conv and not is_picture
            return reader if (reader.op_type == "Conv") == is_picture and (is_flat or is_conv == is_picture) else None
        if reader.op_type == "Flatten" and is_picture and reader.attributes.get("axis", 1) == 1:
            is_picture = False
        elif reader.op_type not in _ACTIVATIONS and not (reader.op_type in _POOLS and is_picture):
            return None
        name = reader.outputs[0]
    return None


def _fits(document: Document, first: Node, second: Node) -> bool:
    """Returns true if each channel of `first` corresponds to one channel of `second`; or, after Flatten, to several
    adjacent ones.
    """
    made = _channels(first, document.constants[first.inputs[1]])
    read = len(_inward(second, document.constants[second.inputs[1]]))
    return read == made if second.op_type == "Conv" else read % made == 0


def _scale(first: Node, second: Node, parameters: Mapping[Node, _Parameters]) -> float:
    """Equalizes a pair once. Returns the largest difference between a factor and 1."""
    own, behind = parameters[first], parameters[second]
    outward = np.abs(own.weights).max(axis=_others(own.weights, _outward_axis(first)))
    inward = _inward(second, behind.weights).reshape(len(outward), -1).max(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        factors = np.sqrt(outward / inward)
    # a channel of zeros has no range, so its factor is 1
    factors = np.where(np.isfinite(factors) & (factors > 0), factors, 1.0)
    shape = [1] * own.weights.ndim
    shape[_outward_axis(first)] = -1
    own.weights = own.weights / factors.reshape(shape)
    own.bias = None if own.bias is None else own.bias / factors
    behind.weights = behind.weights * _spread(second, behind.weights, factors)
    return float(np.abs(factors - 1).max())


def _outward_axis(node: Node) -> int:
    return 0 if node.op_type == "Conv" or node.attributes.get("transB", 0) else 1


def _channels(node: Node, weights: Array) -> int:
    return int(weights.shape[_outward_axis(node)])


def _others(weights: Array, axis: int) -> tuple[int, ...]:
    return tuple(index for index in range(weights.ndim) if index != axis)


def _groups(node: Node) -> int:
    groups = node.attributes.get("group", 1)
    return groups if isinstance(groups, int) else 1


def _inward(node: Node, weights: Array) -> Array:
    """Returns the largest absolute weight for each channel that `node` reads."""
    if node.op_type != "Conv":
        return np.asarray(np.abs(weights).max(axis=_outward_axis(node)))
    each = np.abs(weights).max(axis=tuple(range(2, weights.ndim)))  # shape [O, C / groups]
    return np.asarray(each.reshape(_groups(node), -1, each.shape[1]).max(axis=1).reshape(-1))


def _spread(node: Node, weights: Array, factors: Array) -> Array:
    """Expands `factors` to the shape of `weights`: each weight gets the factor of the channel that it reads."""
    if node.op_type != "Conv":
        axis = 1 - _outward_axis(node)
        rows = np.repeat(factors, weights.shape[axis] // len(factors))
        return rows[:, None] if axis == 0 else rows
    groups = _groups(node)
    each = np.repeat(factors.reshape(groups, -1), weights.shape[0] // groups, axis=0)
    return each.reshape(*each.shape, *[1] * (weights.ndim - 2))


def _read_parameters(document: Document, node: Node) -> _Parameters:
    bias = document.constants[node.inputs[2]] if len(node.inputs) > 2 and node.inputs[2] else None
    return _Parameters(document.constants[node.inputs[1]].astype(np.float64), bias)


def _write_parameters(document: Document, node: Node, parameters: _Parameters) -> Node:
    operands = {1: document.add_constant(f"{node.outputs[0]}_equalized", parameters.weights.astype(np.float32))}
    if parameters.bias is not None:
        operands[2] = document.add_constant(f"{node.outputs[0]}_equalized_bias", parameters.bias.astype(np.float32))
    return rewire(node, operands)
