"""Fits weights and biases to the activations that a calibration observed. There are two methods: adaptive rounding
(`rounding`) and bias correction.

Rounding the weights shifts the mean of a layer's results by E x̄, where E is the rounding error of the weights, and x̄
the mean column of the operand. The bias compensates this (Nagel et al., arXiv:1906.04721, section 4.2, with the
observed mean). Both methods use only the layer's own error and its operand as it is stored, so layers can be fitted
independently.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from service.compiler.messages.observing import Columns, ObservedModel, Windows
from service.compiler.qnn.types import STORAGE_RANGES, QuantizedType
from service.core.models.arrays import Array
from service.quantize.calibration.data import Data
from service.quantize.calibration.observing import CalibrationSession, Moments
from service.quantize.file.document import Document, Node
from service.quantize.rewrites.patterns import Layer, Plan
from service.quantize.rewrites.rewriting import (
    MOST_WEIGHT,
    Fitted,
    Form,
    bias_of,
    is_fitted,
    key_of,
    layer_scales,
    nearest_steps,
)
from service.quantize.weights.rounding import rounded_adaptively

_MOST_COLUMN = 5120  # limit of the elements of a column for adaptive rounding: the sums of their products take 200 MiB


@dataclass(frozen=True)
class Fit:
    """Selects what is fitted.

    Attributes:
        biases: true if biases compensate the shift of each channel's mean that rounding the weights causes.
        rounding: true if weights are rounded so that the results change least, rather than to the nearest step.
    """

    biases: bool = True
    rounding: bool = False

    def __bool__(self) -> bool:
        return self.biases or self.rounding


def fit_layers(
    document: Document,
    plan: Plan,
    form: Form,
    fit: Fit,
    session: CalibrationSession,
    built: ObservedModel,
    positions: Mapping[str, int],
    data: Data,
) -> dict[tuple[str, str], Fitted]:
    """Fits every Conv, Gemm and MatMul that has constant weights. Makes one pass over `data` for each 256 MiB of sums.

    Args:
        form: how operands and biases are stored. Its `fits` are ignored.
        built: a model whose inputs and outputs include all operands of these layers.
        positions: tensor -> its index among the inputs and outputs of `built`.

    Returns:
        The fitted weights and biases, by `rewriting.key_of`.

    Raises:
        InvalidInput: see `Data.inputs`.
    """
    layers = {key_of(layer): layer for layer in plan.layers if is_fitted(layer)}
    kinds = {key: form.types[plan.tensors[layer.operands[0]]] for key, layer in layers.items()}
    seen = session.moments(
        built, data, [_columns(document, layer, kinds[key], fit, positions) for key, layer in layers.items()]
    )
    made = {}
    for index, (key, moments) in enumerate(zip(layers, seen, strict=True), 1):
        made[key] = _fit_layer(document, layers[key], kinds[key].scales[0], form, fit, moments)
        session.tick("fits weights of layers", index, len(layers))
    return made


def operands(plan: Plan) -> list[str]:
    """Returns the tensors that `fit_layers` observes."""
    return [layer.operands[0] for layer in plan.layers if is_fitted(layer)]


def _columns(document: Document, layer: Layer, kind: QuantizedType, fit: Fit, positions: Mapping[str, int]) -> Columns:
    operand, weights = layer.operands[0], document.constants[layer.node.inputs[1]]
    windows = _windows(layer.node, weights)
    size = _rows(layer.node, weights).shape[-1]
    rounding = (*STORAGE_RANGES[kind.storage], kind.scales[0], kind.zero_points[0])
    return Columns(positions[operand], rounding, windows, size, fit.rounding and size <= _MOST_COLUMN)


def _windows(node: Node, weights: Array) -> Windows:
    if node.op_type != "Conv":
        return Windows()
    attributes, positions = node.attributes, weights.ndim - 2

    def ints(name: str, default: int, count: int) -> tuple[int, ...]:
        return tuple(map(int, np.asarray(attributes.get(name, [default] * count)).reshape(-1)))

    strides, dilations, pads = (
        ints("strides", 1, positions),
        ints("dilations", 1, positions),
        ints("pads", 0, 2 * positions),
    )
    auto_pad, (groups,) = attributes.get("auto_pad", "NOTSET"), ints("group", 1, 1)
    return Windows(weights.shape[2:], strides, dilations, pads, str(auto_pad), groups)


def _rows(node: Node, weights: Array) -> Array:
    """Returns the weights as `[groups, channels, K]`. Each row is multiplied by a column of the operand."""
    if node.op_type != "Conv":
        return weights[None] if node.attributes.get("transB", 0) else weights.T[None]
    (groups,) = (int(size) for size in np.asarray(node.attributes.get("group", 1)).reshape(-1))
    return weights.reshape(groups, weights.shape[0] // groups, -1)


def _fit_layer(document: Document, layer: Layer, step: float, form: Form, fit: Fit, moments: Moments) -> Fitted:
    node, pattern = layer.node, layer.pattern
    weights = document.constants[node.inputs[1]]
    bias = bias_of(document, layer)
    scales = layer_scales(document, layer, step, form)
    rows = _rows(node, weights).astype(np.float64)
    each = scales.astype(np.float64).reshape(rows.shape[0], -1, 1)
    scaled = rows / each
    if moments.products is None:
        steps = nearest_steps(scaled)
    else:
        steps = rounded_adaptively(scaled, _spread(moments.products, fit.biases), MOST_WEIGHT)
    shift = ((steps * each - rows) @ moments.means[..., None]).reshape(-1)
    if fit.biases and pattern.bias is not None:
        bias = -shift if bias is None else bias.reshape(-1) - shift
    return Fitted(_as_in_file(node, weights, steps), bias)


def _spread(products: Array, around_mean: bool) -> Array:
    """Returns the matrix of the squared error as a function of rounding errors, `[groups, K, K]`. With `around_mean`,
    errors of the mean do not count, because the bias compensates them.
    """
    sums, count = products[:, :-1, -1], max(float(products[0, -1, -1]), 1.0)
    inner = products[:, :-1, :-1]
    return inner - sums[:, :, None] * sums[:, None] / count if around_mean else inner


def _as_in_file(node: Node, weights: Array, steps: Array) -> Array:
    is_turned = node.op_type != "Conv" and not node.attributes.get("transB", 0)
    return (steps[0].T if is_turned else steps.reshape(weights.shape)).astype(np.int8)
