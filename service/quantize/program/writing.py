"""Writes the calibration program, an ONNX file that computes a float model with any choice of types for its layers.

The types are parameters of the program, that is, additional inputs (`slots`). So one build serves all choices. A stored
value x becomes round(clamp(x / scale, low, high)), the stored integer without its zero point. A product multiplies
these integers by those of the weights, in float32. Its sums are exact up to 2**24, and are scaled like those of the
integer operator. All other operators read the real values of stored integers.

A layer in float reads the rounded result of a layer that is stored, and a layer that is stored rounds its operands, as
in the quantized file.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from service.core.models.arrays import Array
from service.quantize.file.document import Document, Node, rewire
from service.quantize.program.slots import Conversion, Product, Slots, Variant, Variants, slots_of
from service.quantize.rewrites.narrowing import OPERANDS, round_operand
from service.quantize.rewrites.patterns import Layer, Plan

# Adding and subtracting this number rounds float32 numbers below 2**22 to integers, halves to even. In contrast to the
# operator Round, it does so in any order of axes, so that fewer tensors are transposed.
_WHOLE = 1.5 * 2**23


@dataclass(frozen=True)
class Written:
    """The layers of a calibration program.

    Attributes:
        slots: the layers, in the order in which their parameters follow the model's inputs.
        unrounded: tensor -> the tensor that contains its values before they are stored. It has only the results of
            layers that can be stored.
    """

    slots: tuple[Slots, ...]
    unrounded: Mapping[str, str]


def write_program(document: Document, plan: Plan, variants: Variants, narrow: Collection[str] = ()) -> Written:
    """Turns the float model `document`, from which `plan` was created, into the calibration program.

    Args:
        narrow: the names of the layers that can run in bfloat16 too.
    """
    return _Writing(document, slots_of(document, plan, variants, narrow)).run()


class _Writing:
    def __init__(self, document: Document, slots: list[Slots]) -> None:
        self._document, self._slots = document, slots
        self._whole = document.add_constant("octet_whole", np.full(1, _WHOLE, np.float32))
        self._made: list[Node] = []
        self._unrounded: dict[str, str] = {}

    def run(self) -> Written:
        document, readers = self._document, self._document.readers()
        by_node = {slots.layer.node: slots for slots in self._slots}
        last = {_last_node(slots.layer, readers): slots for slots in self._slots if slots.result is not None}
        for node in document.nodes:
            if node in by_node:
                self._layer(by_node[node])
            else:
                self._made.append(node)
            if node in last:
                self._store_result(last[node])
        document.nodes = self._made
        for slots in self._slots:
            for name, shape in slots.inputs:
                document.add_input(name, shape)
        return Written(tuple(self._slots), self._unrounded)

    def _layer(self, slots: Slots) -> None:
        node = slots.layer.node
        stored = {position: self._store(node.inputs[position], names) for position, names in slots.operands.items()}
        if slots.product is not None:
            self._product(slots, slots.product, stored)
        else:
            self._made.append(rewire(node, {position: real for position, (_, real) in stored.items()}))

    def _product(self, slots: Slots, product: Product, stored: Mapping[int, tuple[str, str]]) -> None:
        """Adds the product in float, its stored variants, and, if needed, the product in bfloat16."""
        node = replace(slots.layer.node, inputs=slots.layer.node.inputs[:2])
        name = slots.layer.name
        sums = [self._add(rewire(node, output=self._document.new_name(f"{name}_float")))]
        operands = {position: real if product.is_real else integers for position, (integers, real) in stored.items()}
        for variant in product.variants:
            if variant is not None:
                operands[1] = self._weights(slots.layer, variant, is_real=product.is_real)
            sums.append(self._add(rewire(node, operands, self._document.new_name(f"{name}_sums"))))
        if product.narrow:
            rounded = {at: round_operand(self._document, node.inputs[at], self._made) for at in range(OPERANDS)}
            sums.append(self._add(rewire(node, rounded, self._document.new_name(f"{name}_narrow_sums"))))
        total = self._select(product.selections, sums)
        biased = self._emit("Add", total, product.bias) if product.bias else total
        self._made.append(Node.create("Mul", (biased, product.factor), slots.layer.name))

    def _weights(self, layer: Layer, variant: Variant, *, is_real: bool) -> str:
        values = variant.steps.astype(np.float32)
        if is_real:
            values = values * along(variant.scales, layer.pattern.axis(layer.node), values.ndim)
        return self._document.add_constant(f"{layer.name}_stored_weights", values)

    def _store(self, name: str, names: Conversion) -> tuple[str, str]:
        """Returns the stored integers without the zero point, and their real values; or the values of `name` if the
        tensor stays float.
        """
        inside = self._emit("Min", self._emit("Max", self._emit("Div", name, names.scale), names.low), names.high)
        integers = self._emit("Sub", self._emit("Add", inside, self._whole), self._whole)
        values = self._emit("Mul", integers, names.scale)
        return integers, self._select((names.stored, names.real), (values, name))

    def _store_result(self, slots: Slots) -> None:
        """Renames the result of the last operator, and stores it under its original name."""
        node, names = self._made.pop(), slots.result
        assert names is not None
        name = node.outputs[0]
        self._unrounded[name] = self._add(rewire(node, output=self._document.new_name(f"{name}_unrounded")))
        self._store(self._unrounded[name], names)
        self._made.append(rewire(self._made.pop(), output=name))

    def _select(self, selectors: Sequence[str], tensors: Sequence[str]) -> str:
        """Returns the tensor whose selector is 1; the others are 0. All tensors are finite, so their sum is exact."""
        total, *parts = (self._emit("Mul", *pair) for pair in zip(tensors, selectors, strict=True))
        for part in parts:
            total = self._emit("Add", total, part)
        return total

    def _emit(self, op_type: str, *inputs: str) -> str:
        return self._add(Node.create(op_type, inputs, self._document.new_name(f"{inputs[0]}_{op_type}")))

    def _add(self, node: Node) -> str:
        self._made.append(node)
        return node.outputs[0]


def along(values: Array, axis: int, rank: int) -> Array:
    """Returns `[C]` values as an array of `rank` axes, along `axis`."""
    shape = [1] * rank
    shape[axis] = -1
    return values.reshape(shape)


def _last_node(layer: Layer, readers: Mapping[str, list[Node]]) -> Node:
    """Returns the operator that computes the result: the layer's own, or the activation after it."""
    return layer.node if layer.result == layer.name else readers[layer.name][0]
