"""16x8: layers with 8-bit weights and 16-bit activations. Such layers compute in float32 between conversions, in ONNX
Runtime and here. Their weights are as small as those of int8 layers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from service.quantize.file.document import Document, Node, rewire
from service.quantize.rewrites.patterns import Layer
from service.quantize.rewrites.rewriting import Form, layer_scales, quantized_weights

STORAGE = "uint16"
# since this operator set, conversions support 16 bits; for older operator sets, the conversions of com.microsoft are
# used
_OWN_OPSET = 21
_DEQUANTIZE = ("DequantizeLinear", "com.microsoft.DequantizeLinear")


def widen(document: Document, layers: Sequence[Layer], form: Form) -> None:
    """Quantizes the weights of `layers`, which are float in `document`. Also quantizes, with 16 bits, their results and
    those operands that are float. Biases stay float.

    Args:
        form: must contain the types of those tensors. A tensor without a type stays float.
    """
    types = form.types
    by_name = {layer.name: layer for layer in layers}
    results = {layer.result for layer in layers if layer.result in types}
    domain = "" if document.opset >= _OWN_OPSET or not layers else document.use_domain("com.microsoft")
    stored = {node.outputs[0] for node in document.nodes if node.op_type in _DEQUANTIZE}
    twins: dict[str, str] = {}
    made: list[Node] = []

    def convert(name: str, output: str) -> None:
        kind = types[output if name not in types else name]
        scale = document.add_constant(f"{output}_scale16", np.array(kind.scales[0], np.float32))
        point = document.add_constant(f"{output}_zero_point16", np.array(kind.zero_points[0], kind.storage))
        between = document.new_name(f"{output}_quantized16")
        made.append(Node.create("QuantizeLinear", (name, scale, point), between, domain=domain))
        made.append(Node.create("DequantizeLinear", (between, scale, point), output, domain=domain))

    for node in document.nodes:
        layer, operands = by_name.get(node.outputs[0]), {}
        for position in layer.operands if layer is not None else ():
            name = node.inputs[position]
            if name in types and name not in stored and name not in results:
                if name not in twins:
                    twins[name] = document.new_name(f"{name}_dequantized16")
                    convert(name, twins[name])
                operands[position] = twins[name]
        if layer is not None and layer.pattern.weights is not None:
            operands |= _weighted(document, layer, form, made)
        if node.outputs[0] in results:
            real = document.new_name(f"{node.outputs[0]}_real")
            made.append(rewire(node, operands, real))
            convert(real, node.outputs[0])
        else:
            made.append(rewire(node, operands) if operands else node)
    document.nodes = made


def _weighted(document: Document, layer: Layer, form: Form, made: list[Node]) -> dict[int, str]:
    """Returns the names of the layer's weights, dequantized from 8 bits, and of its bias; both by operand index."""
    pattern = layer.pattern
    assert pattern.weights is not None
    name = layer.node.inputs[pattern.weights]
    scales = layer_scales(document, layer, 1.0, form)
    weights = quantized_weights(document, layer, scales, form.fits)
    steps = document.add_constant(f"{name}_quantized", weights.steps)
    scale = document.add_constant(f"{name}_scale", scales)
    output = document.new_name(f"{name}_dequantized")
    made.append(Node.create("DequantizeLinear", (steps, scale), output, axis=pattern.axis(layer.node)))
    if pattern.bias is None or weights.bias is None:
        return {pattern.weights: output}
    bias = document.add_constant(f"{name}_bias", weights.bias.reshape(-1).astype(np.float32))
    return {pattern.weights: output, pattern.bias: bias}
