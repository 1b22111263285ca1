"""Builds a model that contains each layer both in float and in integers, and has an input that selects between them.

A single build can then measure any mixture, such as each layer alone. The quantized layers are those of the quantized
file and run in the same kernels; nothing is simulated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from service.quantize.file.document import Document, Node, rewire
from service.quantize.rewrites.patterns import Layer, Plan
from service.quantize.rewrites.rewriting import Form, Stored, rewrite
from service.quantize.rewrites.widening import widen

SWITCHES = "octet_switches"


def switched(model: Document, plan: Plan, integer: Form, wide: Form) -> tuple[bytes, list[str]]:
    """Returns the file with an additional input `SWITCHES`, `[2 * layers]` float32. A 1 in the first half selects int8
    for a layer, and a 1 in the second half selects 16x8. With 0 in both, the layer runs in float.

    A layer in int8 has the operands, weights and result of the quantized file. If the next layer runs in float, it
    reads the rounded result. If the previous layer runs in float, its result is rounded. Operators that only move
    values have no switch.

    Args:
        model: the float model from which `plan` was created. The model is changed. integer, wide: the forms of layers
        in int8 and of layers in 16x8.

    Returns:
        The file, and the names of the layers (`patterns.Layer.name`) in the order of the switches.
    """
    layers = {layer.node: layer for layer in plan.layers if not layer.pattern.moves}
    names = [layer.name for layer in layers.values()]
    whole = Plan(tuple(layers.values()), plan.tensors, plan.real)
    return _Switching(model, whole, integer, wide).run(), names


class _Switching:
    def __init__(self, document: Document, plan: Plan, integer: Form, wide: Form) -> None:
        self._document, self._plan, self._integer, self._wide = document, plan, integer, wide
        self._made: list[Node] = []

    def run(self) -> bytes:
        """Passes each layer through `rewrite` in a separate document, because the float form stays in the file as
        well.
        """
        document = self._document
        floats, behind = list(document.nodes), {}
        readers = document.readers()
        for layer in self._plan.layers:
            if layer.result is not None and layer.result != layer.name:
                behind[readers[layer.name][0]] = layer
        layers = {layer.node: layer for layer in self._plan.layers}
        switches = [document.new_name(f"{SWITCHES}_{index}") for index in range(2 * len(layers))]
        sizes = document.add_constant(f"{SWITCHES}_sizes", np.ones(len(switches), np.int64))
        split = Node.create("Split", (SWITCHES, sizes), switches[0], axis=0)
        self._made.append(Node(split.op_type, split.inputs, tuple(switches), split.attributes, split.rest))
        pairs = zip(switches[: len(layers)], switches[len(layers) :], strict=True)
        switch = dict(zip((layer.name for layer in layers.values()), pairs, strict=True))
        pieces: dict[str, list[Node]] = {}
        for node in floats:
            found = layers.get(node) or behind.get(node)
            if found is None:
                self._made.append(node)
                continue
            pieces.setdefault(found.name, []).append(node)
            if found.result is None or node.outputs[0] == found.result:
                self._switch(found, pieces[found.name], switch[found.name])
        document.nodes = self._made
        document.add_input(SWITCHES, len(switches))
        return document.serialize()

    def _switch(self, layer: Layer, nodes: list[Node], switches: tuple[str, str]) -> None:
        """Writes all forms of a layer of one or two operators. The selected form gets the name of the result."""
        document, result = self._document, nodes[-1].outputs[0]
        real, between = document.new_name(f"{result}_float"), document.new_name(f"{layer.name}_between")
        if len(nodes) == 1:
            self._made.append(rewire(nodes[0], output=real))
        else:
            self._made.append(rewire(nodes[0], output=between))
            self._made.append(rewire(nodes[1], {0: between}, real))
        forms = (self._form(layer, nodes, result, "integer"), self._form(layer, nodes, result, "wide"))
        total = real
        for form, switch in zip(forms, switches, strict=True):
            difference, share = document.new_name(f"{form}_difference"), document.new_name(f"{form}_share")
            self._made.append(Node.create("Sub", (form, real), difference))
            self._made.append(Node.create("Mul", (difference, switch), share))
            summed = result if form is forms[-1] else document.new_name(f"{form}_sum")
            self._made.append(Node.create("Add", (total, share), summed))
            total = summed

    def _form(self, layer: Layer, nodes: list[Node], result: str, form: str) -> str:
        """Writes the layer as it is in the quantized file, on its float operands. Returns the name of its result."""
        document = self._document
        kept, outputs, inputs = document.nodes, document.outputs, document.inputs
        first = rewire(nodes[0], output=document.new_name(f"{nodes[0].outputs[0]}_{form}"))
        document.nodes = [first]
        if len(nodes) == 2:
            document.nodes.append(rewire(nodes[1], {0: first.outputs[0]}, document.new_name(f"{result}_{form}")))
        end = document.nodes[-1].outputs[0]
        document.inputs, document.outputs = tuple(dict.fromkeys(layer.operands.values())), ()
        own = Layer(first, layer.pattern, layer.operands, layer.constants, end if layer.result is not None else None)
        tensors = {name: self._plan.tensors[name] for name in layer.operands.values()}
        if layer.result is not None:
            tensors[end] = self._plan.tensors[layer.result]
        twins: Mapping[str, Stored] = {}
        if form == "integer":
            twins = rewrite(document, Plan((own,), tensors, {}), self._integer)
        else:
            types = {name: self._wide.types[kind] for name, kind in tensors.items()}
            widen(document, [own], replace(self._wide, types=types))
        self._made += document.nodes
        document.nodes, document.outputs, document.inputs = kept, outputs, inputs
        return twins[end].dequantized if end in twins else end
