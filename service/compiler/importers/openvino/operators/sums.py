"""Sums of two stored tensors, as OpenVINO computes them.

Its transformations compute the sum in the scale of one operand (`AddTransformation` in
src/common/low_precision_transformations/src/add.cpp). Its CPU plugin then lets the convolution before the sum add the
other operand, as a post-operation. The FakeQuantize between the two then clamps and does not round
(src/plugins/intel_cpu/src/dnnl_postops_composer.cpp: "drop rounding one special residual pattern").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from tvm import relax

from service.compiler.importers.openvino.model import Entry, Layer
from service.compiler.importers.openvino.node import Node, State
from service.compiler.importers.openvino.values import Compressed, Scaled, Stored, Value
from service.compiler.qnn import ops

_CONVOLUTIONS = ("Convolution", "GroupConvolution")
_ACTIVATIONS = ("ReLU", "Clamp", "PReLU", "Sigmoid", "Tanh", "Elu", "HSwish", "Swish", "Mish", "Gelu")
_MOST_STEPS = 4  # layers between a convolution and its FakeQuantize: a bias, and activations


def readers_of(layers: Iterable[Layer]) -> dict[Entry, list[Layer]]:
    """Returns the layers that read each output."""
    found: dict[Entry, list[Layer]] = {}
    for layer in layers:
        for entry in layer.inputs:
            found.setdefault(entry, []).append(layer)
    return found


def add(node: Node) -> list[Value]:
    """`Add`. The operand that nothing else reads is scaled to the scale of the other one."""
    node.count(2)
    a, b = node.value(0), node.value(1)
    if not (isinstance(a, Stored) and isinstance(b, Stored)) or node.shape(0) != node.shape(1):
        return node.standard("Add", node.real(0), node.real(1))
    only = [len(node.state.readers[entry]) == 1 for entry in node.layer.inputs]
    first = 1 if only[1] and not only[0] else 0
    full, empty = (b, a) if first else (a, b)
    scaled = _unrounded(node, first, full, empty) if only[first] else None
    by_convolution = scaled is not None
    if scaled is None:
        whole = node.emit(relax.op.astype(full.expr, "float32"), "whole")
        scaled = _fma(node, whole, *_output(full, empty))
    peer = node.emit(relax.op.astype(empty.expr, "float32"), "peer")
    total = node.emit(relax.op.add(scaled, peer), "total")
    return [Scaled(total, np.float32(empty.type.scale), by_convolution)]


def _output(full: Stored, empty: Stored) -> tuple[np.float32, np.float32]:
    """Returns the scale and shift by which stored values of `full` become steps of `empty`, less the zero point of
    `empty`.
    """
    own, peer = np.float32(full.type.scale), np.float32(empty.type.scale)
    ratio = np.float32(own / peer)
    # the zero point of `empty` moves into that of `full`, and both into the ends of its output range
    moved = np.float32(full.type.zero_point) + np.float32(peer * np.float32(empty.type.zero_point)) / own
    low, high = (np.float32((np.float32(end) - moved) * ratio) for end in (full.type.min, full.type.max))
    return np.float32((high - low) / np.float32(full.type.max - full.type.min)), low


def _unrounded(node: Node, place: int, full: Stored, empty: Stored) -> relax.Expr | None:
    """Returns `full` in steps of `empty` without rounding it, or None if no convolution adds the sum."""
    convolution = _convolution_before(node.state, node.layer.inputs[place])
    if convolution is None or full.source is None or not _is_quantized(node.state.readers, node.layer):
        return None
    if convolution.inputs[0] == node.layer.inputs[1 - place]:
        return None  # the convolution cannot overwrite the tensor that it reads
    x, steps = full.source
    scale, shift = _output(full, empty)
    moved = _fma(node, x, np.float32(steps.factor * scale), np.float32(steps.shift * scale + shift))
    low, high = (np.float32(np.float32(bound) * scale + shift) for bound in (0, steps.last))
    above = node.emit(relax.op.maximum(moved, relax.const(low, "float32")), "above")
    return node.emit(relax.op.minimum(above, relax.const(high, "float32")), "inside")


def _fma(node: Node, x: relax.Expr, factor: np.float32, addend: np.float32) -> relax.Expr:
    operands = (relax.const(each, "float32") for each in (factor, addend))
    return node.emit(ops.real_fma(x, *operands), "scaled")


def _convolution_before(state: State, entry: Entry) -> Layer | None:
    """Returns the convolution whose result a FakeQuantize rounds, after a constant bias and activations."""
    layer = state.layers[entry[0]]
    if layer.type != "FakeQuantize":
        return None
    for _ in range(_MOST_STEPS):
        layer = state.layers[layer.inputs[0][0]]
        if layer.type in _CONVOLUTIONS:
            return layer
        is_bias = layer.type == "Add" and isinstance(state.values.get(layer.inputs[1]), np.ndarray | Compressed)
        if not is_bias and layer.type not in _ACTIVATIONS:
            return None
    return None


def _is_quantized(readers: Mapping[Entry, Sequence[Layer]], layer: Layer) -> bool:
    """Returns true if only one FakeQuantize reads the sum, directly or after an activation."""
    for _ in range(_MOST_STEPS):
        found = readers.get((layer.id, 0), [])
        if len(found) != 1:
            return False
        layer = found[0]
        if layer.type == "FakeQuantize":
            return True
        if layer.type not in _ACTIVATIONS:
            return False
    return False
