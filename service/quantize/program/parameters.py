"""Computes the parameters of a calibration program for a choice of types.

The numbers of a layer are computed by the functions that write the quantized file (`rewrites.rewriting`), so that the
program and the file have the same types, weights and biases.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from service.compiler.qnn.types import STORAGE_RANGES, QuantizedType
from service.core.models.arrays import Array
from service.quantize.calibration.methods import affine
from service.quantize.file.document import Document
from service.quantize.program.slots import Product, Slots, Variant, Variants
from service.quantize.rewrites.patterns import Layer, Plan
from service.quantize.rewrites.rewriting import Form, bias_steps, layer_scales, quantized_weights

_UNSTORED = (0.0, 1.0, 1.0, 0.0, 0.0)
_ZERO, _ONE = np.zeros(1, np.float32), np.ones(1, np.float32)
Numbers = list[Array]  # the values of a layer's parameters, in the order of `Slots.inputs`


class OtherWeights(Exception):
    """The program does not contain the weights that this choice needs, so that another program must be written."""


@dataclass(frozen=True)
class Stored:
    """How layers are stored.

    Attributes:
        document: the float model from which `plan` was created.
        form: the types and the weights.
    """

    document: Document
    plan: Plan
    form: Form


def variants_of(choices: Iterable[Stored]) -> Variants:
    """Returns the weights that a program needs for these choices. Equal weights of several choices are one variant."""
    found: dict[str, list[Variant]] = {}
    for choice in choices:
        for layer in choice.plan.layers:
            if layer.pattern.weights is not None:
                variant, known = _variant(choice, layer), found.setdefault(layer.name, [])
                if not any(np.array_equal(variant.steps, each.steps) for each in known):
                    known.append(variant)
    return found


def float_numbers(slots: Sequence[Slots], document: Document, *, is_narrow: bool = False) -> list[Numbers]:
    """Returns the numbers with which all layers are float.

    Args:
        document: the float model. Its weights may differ from those of the program by one factor for each channel.
        is_narrow: true if products are computed in bfloat16 where the program can do so.

    Raises:
        OtherWeights: its weights differ in another way.
    """
    nodes = {node.outputs[0]: node for node in document.nodes}
    return [_in_float(each, document, nodes[each.layer.name].inputs, is_narrow=is_narrow) for each in slots]


def stored_numbers(slots: Sequence[Slots], choice: Stored) -> list[Numbers]:
    """Returns the numbers with which the layers of `choice` are stored, and all others are float.

    Raises:
        OtherWeights: the program does not contain the weights of the choice.
    """
    layers = {layer.name: layer for layer in choice.plan.layers}
    real = float_numbers(slots, choice.document)
    return [
        _stored(each, choice, layers[each.layer.name]) if each.layer.name in layers else numbers
        for each, numbers in zip(slots, real, strict=True)
    ]


def _in_float(slots: Slots, document: Document, inputs: Sequence[str], *, is_narrow: bool) -> Numbers:
    numbers = [_UNSTORED] * (len(slots.operands) + (slots.result is not None))
    product = slots.product
    if product is None:
        return _numbers(numbers)
    factor = _ONE
    if product.weights is not None:
        factor = _factor(product.weights, document.constants[inputs[1]], slots.layer)
    has_bias = product.bias and len(inputs) > 2 and inputs[2] != ""
    bias = document.constants[inputs[2]].reshape(-1) / factor if has_bias else _ZERO
    return _numbers(numbers, product, factor=factor, bias=bias, is_narrow=is_narrow)


def _numbers(
    conversions: Iterable[Sequence[float]],
    product: Product | None = None,
    variant: int | None = None,
    factor: Array = _ONE,
    bias: Array = _ZERO,
    *,
    is_narrow: bool = False,
) -> Numbers:
    """Returns the numbers of a layer in the order of `Slots.inputs`."""
    numbers = [np.full(1, number, np.float32) for each in conversions for number in each]
    if product is None:
        return numbers
    is_narrow = is_narrow and product.narrow != ""
    selected = [index == variant for index in range(len(product.variants))]
    selections = (variant is None and not is_narrow, *selected, *([is_narrow] if product.narrow else []))
    numbers += [np.full(1, each, np.float32) for each in selections]
    ends = (factor, *((bias,) if product.bias else ()))
    whole = (np.broadcast_to(np.asarray(end, np.float32).reshape(-1), product.shape[:1]) for end in ends)
    return [*numbers, *(end.reshape(product.shape) for end in whole)]


def _factor(before: Array, after: Array, layer: Layer) -> Array:
    """Returns the factor of each channel by which `after` differs from `before`, `[C]`."""
    axis = layer.pattern.axis(layer.node)
    rows = [np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1) for values in (before, after)]
    largest = np.abs(rows[0]).argmax(axis=1)[:, None]
    low, high = (np.take_along_axis(row, largest, axis=1)[:, 0] for row in rows)
    factor = np.divide(high, low, out=np.ones_like(low), where=low != 0)
    if not np.array_equal(rows[0] * factor[:, None], rows[1]):
        raise OtherWeights
    return np.asarray(factor)


def _stored(slots: Slots, choice: Stored, layer: Layer) -> Numbers:
    form, tensors = choice.form, choice.plan.tensors
    conversions = [_conversion_of(choice, layer, position) for position in slots.operands]
    if slots.result is not None:
        name = layer.result
        conversions.append(_UNSTORED if name is None else _conversion(form.types[tensors[name]]))
    product = slots.product
    if product is None:
        return _numbers(conversions)
    step = np.float32(conversions[0][2])
    if product.weights is None:
        return _numbers(conversions, product, 0, np.asarray(step * np.float32(conversions[1][2])))
    variant = _variant(choice, layer)
    index, known = _find(product, variant)
    scales = np.asarray(step * variant.scales)
    factor = np.asarray(variant.scales / known.scales) if product.is_real else scales
    bias = quantized_weights(choice.document, layer, variant.scales, form.fits).bias
    if bias is None:
        return _numbers(conversions, product, index, factor)
    if form.real_biases:
        return _numbers(conversions, product, index, factor, bias.reshape(-1) / factor)
    steps = bias_steps(bias, scales).astype(np.float32)
    return _numbers(conversions, product, index, factor, steps * scales / factor if product.is_real else steps)


def _variant(choice: Stored, layer: Layer) -> Variant:
    form = choice.form
    step = 1.0 if form.real_biases else form.types[choice.plan.tensors[layer.operands[0]]].scales[0]
    scales = layer_scales(choice.document, layer, step, form)
    return Variant(quantized_weights(choice.document, layer, scales, choice.form.fits).steps, scales)


def _find(product: Product, variant: Variant) -> tuple[int, Variant]:
    """Returns the variant of the program that has the same integers, and its index."""
    for index, known in enumerate(product.variants):
        if known is not None and np.array_equal(known.steps, variant.steps):
            return index, known
    raise OtherWeights


def _conversion_of(choice: Stored, layer: Layer, position: int) -> Sequence[float]:
    """Returns the numbers of an operand. Constants are stored in int8 layers only."""
    form, tensors = choice.form, choice.plan.tensors
    if position in layer.operands:
        return _conversion(form.types[tensors[layer.operands[position]]])
    if form.real_biases:
        return _UNSTORED
    storage = next(form.types[tensors[name]].storage for name in layer.operands.values())
    values = choice.document.constants[layer.constants[position]]
    return _conversion(affine(float(values.min()), float(values.max()), storage))


def _conversion(kind: QuantizedType) -> Sequence[float]:
    low, high = STORAGE_RANGES[kind.storage]
    return 1.0, 0.0, kind.scales[0], low - kind.zero_points[0], high - kind.zero_points[0]
