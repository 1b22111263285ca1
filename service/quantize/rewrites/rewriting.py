"""Inserts conversions into the file. Each stored tensor is quantized after the operator that produces it, and
dequantized before each operator that reads it. The compiler and ONNX Runtime turn this into integer arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from service.compiler.qnn.types import QuantizedType
from service.core.errors import Unsupported
from service.core.models.arrays import Array
from service.quantize.calibration.methods import affine, stored
from service.quantize.file.document import Document, Node, rewire
from service.quantize.rewrites.patterns import Layer, Plan

_LEAST_OPSET = 13  # since this operator set, conversions have an axis
MOST_WEIGHT = 127
FITTED = ("Conv", "Gemm", "MatMul")  # operators whose weights and biases can be fitted
_MOST_BIAS = 1 << 30  # limit of stored biases; sums of products use the rest of int32's range


@dataclass(frozen=True)
class Stored:
    """A tensor that is stored as integers.

    real: the name of the float tensor before its conversion.
    dequantized: the name of the tensor converted back to float.
    kind: the type of the stored tensor.
    """

    real: str
    dequantized: str
    kind: QuantizedType


@dataclass(frozen=True)
class Fitted:
    """The quantized weights of a layer, and the bias that belongs to them.

    Attributes:
        steps: the weights as int8, in the scales of `weight_scales`. `steps` has the shape of the original weights.
        bias: `[channels]` float, or None if the layer has none.
    """

    steps: Array
    bias: Array | None


# Maps the key of each layer that `is_fitted` (`key_of`: its operand and weights) to its fitted parameters. None means
# that no layer is fitted, and that all weights are rounded to the nearest step.
Fits = Mapping[tuple[str, str], Fitted] | None


@dataclass(frozen=True)
class Form:
    """How layers are stored: as int8, or as 16x8. All code that quantizes weights uses this class, so that a layer's
    weights are computed in the same steps for either form.

    Attributes:
        types: the types of tensors, by the names in `Plan.observed`.
        fits: the fitted weights and biases.
        real_biases: true if biases stay float32; otherwise they are int32 in steps of the products' scale.
    """

    types: Mapping[str, QuantizedType]
    fits: Fits = None
    real_biases: bool = False


def rewrite(document: Document, plan: Plan, form: Form) -> dict[str, Stored]:
    """Quantizes `document` according to `plan`.

    Args:
        form: must contain the type of each tensor in `plan.observed`.

    Returns:
        The stored tensors, in the order in which they are computed.

    Raises:
        Unsupported: see `check_operator_set`.
    """
    check_operator_set(document)
    return _Rewriting(document, plan, form).run()


def check_operator_set(document: Document) -> None:
    """Raises `Unsupported` if conversions along an axis do not exist in the file's operator set."""
    if document.opset < _LEAST_OPSET:
        raise Unsupported(
            f"the model uses operator set {document.opset}; quantizing weights by channel needs {_LEAST_OPSET} or "
            "newer",
            hint="convert it with onnx.version_converter, or export it again",
        )


class _Rewriting:
    def __init__(self, document: Document, plan: Plan, form: Form) -> None:
        self._document = document
        self._form = form
        self._plan = plan
        self._layers = {layer.node: layer for layer in plan.layers}
        stored = [layer for layer in plan.layers if layer.result is not None]
        self._results = {name for layer in stored for name in (layer.result, *layer.node.outputs[1:])}
        self._stored: dict[str, Stored] = {}
        self._made: list[Node] = []

    def run(self) -> dict[str, Stored]:
        for name in self._document.inputs:
            self._store(name)
        readers = self._document.readers()
        for node in self._document.nodes:
            layer = self._layers.get(node)
            self._made.append(self._real(node) if layer is None else self._quantized(layer))
            for name in node.outputs:
                self._store(name)
        self._keep_outputs(readers)
        self._document.nodes = self._made
        return self._stored

    def _real(self, node: Node) -> Node:
        """Makes an operator that stays in float read the dequantized results of layers. (Only a conversion reads a
        layer's float result.) Tensors that are not results of layers are read unchanged.
        """
        stored = {position: name for position, name in enumerate(node.inputs) if name in self._results}
        twins = {position: self._stored[name].dequantized for position, name in stored.items() if name in self._stored}
        return rewire(node, twins) if twins else node

    def _store(self, name: str) -> None:
        """Quantizes and dequantizes a tensor, if the plan stores it."""
        if name not in self._plan.tensors:
            return
        kind = self._form.types[self._plan.tensors[name]]
        scale, zero_point = self._parameters(name, kind)
        names = [self._document.new_name(f"{name}_{what}") for what in ("quantized", "dequantized")]
        self._made.append(Node.create("QuantizeLinear", (name, scale, zero_point), names[0]))
        self._made.append(Node.create("DequantizeLinear", (names[0], scale, zero_point), names[1]))
        self._stored[name] = Stored(name, names[1], kind)

    def _parameters(self, name: str, kind: QuantizedType) -> tuple[str, str]:
        scale = self._document.add_constant(f"{name}_scale", np.array(kind.scales[0], np.float32))
        point = np.array(kind.zero_points[0], kind.storage)
        return scale, self._document.add_constant(f"{name}_zero_point", point)

    def _quantized(self, layer: Layer) -> Node:
        """Returns the layer's operator, reading dequantized operands."""
        node, pattern = layer.node, layer.pattern
        operands = {position: self._stored[name].dequantized for position, name in layer.operands.items()}
        operands |= {position: self._constant(layer, name) for position, name in layer.constants.items()}
        if pattern.weights is not None:
            step = self._stored[layer.operands[0]].kind.scales[0]
            operands |= self._weighted(layer, step)
        return rewire(node, operands)

    def _constant(self, layer: Layer, name: str) -> str:
        """Quantizes an activation that is a constant. The constant gets the same storage type as other activations."""
        storage = next(self._stored[each].kind.storage for each in layer.operands.values())
        values = self._document.constants[name]
        kind = affine(float(values.min()), float(values.max()), storage)
        steps = self._document.add_constant(f"{name}_quantized", stored(values, kind).astype(storage))
        return self._dequantized(name, steps, *self._parameters(name, kind))

    def _weighted(self, layer: Layer, step: float) -> dict[int, str]:
        node, pattern = layer.node, layer.pattern
        position, axis = pattern.weights, pattern.axis(node)
        assert position is not None
        name = node.inputs[position]
        scales = layer_scales(self._document, layer, step, self._form)
        weights = quantized_weights(self._document, layer, scales, self._form.fits)
        bias = weights.bias
        parameters = (
            self._document.add_constant(f"{name}_scale", scales),
            self._document.add_constant(f"{name}_zero_point", np.zeros(scales.shape, np.int8)),
        )
        made = {position: self._dequantized(name, self._constant_of(name, weights.steps), *parameters, axis=axis)}
        if bias is not None and pattern.bias is not None:
            has_own = len(node.inputs) > pattern.bias and node.inputs[pattern.bias] != ""
            own = node.inputs[pattern.bias] if has_own else f"{name}_bias"
            made[pattern.bias] = self._bias(own, bias, np.float32(step) * scales)
        return made

    def _bias(self, name: str, bias: Array, scales: Array) -> str:
        steps = bias_steps(bias, scales)
        parameters = (
            self._document.add_constant(f"{name}_scale", scales),
            self._document.add_constant(f"{name}_zero_point", np.zeros(scales.shape, np.int32)),
        )
        return self._dequantized(name, self._constant_of(name, steps), *parameters, axis=0)

    def _constant_of(self, name: str, steps: Array) -> str:
        return self._document.add_constant(f"{name}_quantized", steps)

    def _dequantized(self, name: str, steps: str, scale: str, zero_point: str, axis: int = 1) -> str:
        output = self._document.new_name(f"{name}_dequantized")
        self._made.append(Node.create("DequantizeLinear", (steps, scale, zero_point), output, axis=axis))
        return output

    def _keep_outputs(self, readers: Mapping[str, list[Node]]) -> None:
        """Keeps the names of the model's outputs. If an output is stored, it is dequantized under its original name."""
        ends = {name: pair for name, pair in self._stored.items() if name in self._document.outputs}
        for name, pair in ends.items():
            real = self._document.new_name(f"{name}_real")
            swapped = {name: real, pair.dequantized: name}
            self._made = [_swapped(node, swapped) for node in self._made]
            self._stored[name] = Stored(real, name, pair.kind)


def bias_of(document: Document, layer: Layer) -> Array | None:
    """Returns a layer's constant bias, or None if it has none."""
    position, inputs = layer.pattern.bias, layer.node.inputs
    has_one = position is not None and len(inputs) > position and inputs[position] != ""
    return document.constants[inputs[position]] if has_one and position is not None else None


def bias_steps(bias: Array, scales: Array) -> Array:
    """Returns a bias in steps of `scales`, the products' scale of each channel: `[C]` int32."""
    return np.rint(bias.reshape(-1).astype(np.float64) / scales.astype(np.float64)).astype(np.int32)


def is_fitted(layer: Layer) -> bool:
    """Returns true if the layer's weights and bias can be fitted to observed activations."""
    return layer.node.op_type in FITTED and layer.pattern.weights is not None and 0 in layer.operands


def key_of(layer: Layer) -> tuple[str, str]:
    """Returns the key of a layer in `Fits`. `is_fitted` must be true for the layer."""
    assert layer.pattern.weights is not None
    return layer.operands[0], layer.node.inputs[layer.pattern.weights]


def layer_scales(document: Document, layer: Layer, step: float, form: Form) -> Array:
    """Returns the scale of each channel of a layer's weights, for an operand with the scale `step`."""
    assert layer.pattern.weights is not None
    weights, axis = document.constants[layer.node.inputs[layer.pattern.weights]], layer.pattern.axis(layer.node)
    return weight_scales(weights, axis, step, None if form.real_biases else bias_of(document, layer))


def quantized_weights(document: Document, layer: Layer, scales: Array, fits: Fits) -> Fitted:
    """Returns a layer's weights, in steps of `scales`, and its bias. Both come from `fits`; without fits, weights are
    rounded to the nearest step.

    Both int8 and 16x8 layers use this function.

    Raises:
        KeyError: `fits` contains other layers but not this layer, although this layer can be fitted. This is a bug in
            the caller.
    """
    if fits is not None and is_fitted(layer):
        return fits[key_of(layer)]
    assert layer.pattern.weights is not None
    weights, axis = document.constants[layer.node.inputs[layer.pattern.weights]], layer.pattern.axis(layer.node)
    shape = [1] * weights.ndim
    shape[axis] = -1
    exact = weights.astype(np.float64) / scales.astype(np.float64).reshape(shape)
    return Fitted(nearest_steps(exact).astype(np.int8), bias_of(document, layer))


def nearest_steps(scaled: Array) -> Array:
    """Returns weights rounded to the nearest step.

    Args:
        scaled: the weights divided by their scales, in float64. In float32, some of them would be rounded to .5 first.
    """
    return np.asarray(np.clip(np.rint(scaled), -MOST_WEIGHT, MOST_WEIGHT))


def weight_scales(weights: Array, axis: int, step: float, bias: Array | None) -> Array:
    """Returns the scale of each channel along `axis`. The largest weight of the channel becomes 127, unless the bias,
    in steps of `step` times the scale, then needs more than 30 bits. A channel of zeros has the scale 1, or the scale
    that its bias needs.
    """
    others = tuple(index for index in range(weights.ndim) if index != axis)
    scales = np.abs(weights).max(axis=others).astype(np.float64) / MOST_WEIGHT
    if bias is not None:
        scales = np.maximum(scales, np.abs(bias.reshape(-1).astype(np.float64)) / (np.float64(step) * _MOST_BIAS))
    scales = scales.astype(np.float32)
    return np.asarray(np.where(scales > 2.0**-126, scales, np.float32(1)))


def _swapped(node: Node, names: Mapping[str, str]) -> Node:
    inputs = tuple(names.get(name, name) for name in node.inputs)
    outputs = tuple(names.get(name, name) for name in node.outputs)
    return (
        node
        if (inputs, outputs) == (node.inputs, node.outputs)
        else Node(node.op_type, inputs, outputs, node.attributes, node.rest)
    )
