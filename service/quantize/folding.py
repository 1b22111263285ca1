"""What is tidied before anything is quantized: copies go, batch normalization becomes part of convolutions, and other
operators become those that integers have."""

from __future__ import annotations

import numpy as np

from service.quantize.document import Document, Node, renamed

# Those whose result has the shape of the first operand, if that is a picture.
_ELEMENTWISE = ("Clip", "HardSwish", "LeakyRelu", "PRelu", "Relu", "Sigmoid", "Silu")
_EPSILON = 1e-5  # of BatchNormalization, where the file has none


def drop_copies(document: Document) -> None:
    """Takes out every Identity but those that make outputs of the model: exporters put one wherever two layers have
    equal constants, so that the weights of one look computed."""
    source: dict[str, str] = {}
    kept = []
    for node in document.nodes:
        inputs = tuple(source.get(name, name) for name in node.inputs)
        if node.op_type == "Identity" and node.outputs[0] not in document.outputs:
            source[node.outputs[0]] = inputs[0]
        else:
            kept.append(node if inputs == node.inputs else renamed(node, dict(enumerate(inputs))))
    document.nodes = kept


def fold_batch_norms(document: Document) -> int:
    """Puts every BatchNormalization that alone reads a convolution of constant weights into it.

    Conv(x, w, b) * f + (beta - mean * f), where f = gamma / sqrt(variance + epsilon), is Conv(x, w * f, b * f + beta -
    mean * f): https://arxiv.org/abs/1712.05877, section 3.2. Computed in float64.

    Returns:
        How many it was.
    """
    readers = document.readers()
    folded: dict[Node, Node | None] = {}
    for node in document.nodes:
        if node.op_type != "Conv" or node.outputs[0] in document.outputs:
            continue
        behind = readers.get(node.outputs[0], [])
        if len(behind) != 1 or behind[0].op_type != "BatchNormalization" or behind[0].inputs[0] != node.outputs[0]:
            continue
        made = _folded(document, node, behind[0])
        if made is not None:
            folded[node], folded[behind[0]] = made, None
    document.nodes = [made for node in document.nodes if (made := folded.get(node, node)) is not None]
    return len(folded) // 2


def unify(document: Document) -> None:
    """Writes operators as others that have an integer form: x - c as x + (-c), and the mean over rows and columns of a
    convolution's result as GlobalAveragePool."""
    pictures: set[str] = set()  # names of [N, C, H, W]
    made: list[Node] = []
    for node in document.nodes:
        first = node.inputs[0] if node.inputs else ""
        weights = document.constants.get(node.inputs[1]) if len(node.inputs) > 1 else None
        if (node.op_type == "Conv" and weights is not None and weights.ndim == 4) or (
            node.op_type in _ELEMENTWISE and first in pictures
        ):
            pictures.add(node.outputs[0])
        if node.op_type == "Sub" and weights is not None and weights.dtype == np.float32:
            negated = document.add_constant(f"{node.inputs[1]}_negated", -weights)
            node = Node.made("Add", (first, negated), node.outputs[0])
        elif node.op_type == "ReduceMean" and first in pictures and _is_global(document, node):
            node = Node.made("GlobalAveragePool", (first,), node.outputs[0])
        made.append(node)
    document.nodes = made


def _is_global(document: Document, node: Node) -> bool:
    """Whether a ReduceMean of four dimensions is over the last two of them, and keeps them."""
    axes = document.constants.get(node.inputs[1]) if len(node.inputs) > 1 else node.attributes.get("axes")
    places = np.asarray(() if axes is None else axes).reshape(-1).tolist()
    return (
        sorted(axis % 4 for axis in places if axis in range(-4, 4)) == [2, 3]
        and node.attributes.get("keepdims", 1) == 1
    )


def _folded(document: Document, node: Node, norm: Node) -> Node | None:
    if len(norm.inputs) != 5 or any(norm.outputs[1:]) or norm.attributes.get("training_mode", 0):
        return None
    rows = [document.constants.get(name) for name in (node.inputs[1], *norm.inputs[1:])]
    has_bias = len(node.inputs) > 2 and node.inputs[2] != ""
    bias = document.constants.get(node.inputs[2]) if has_bias else np.zeros(1, np.float32)
    if bias is None or any(row is None or row.dtype != np.float32 for row in rows):
        return None
    weights, gamma, beta, mean, variance = (row.astype(np.float64) for row in rows if row is not None)
    filters = weights.shape[0]
    if any(row.shape != (filters,) for row in (gamma, beta, mean, variance)) or bias.size not in (1, filters):
        return None
    epsilon = norm.attributes.get("epsilon", _EPSILON)
    if not isinstance(epsilon, float):
        return None
    factor = gamma / np.sqrt(variance + np.float64(np.float32(epsilon)))
    scaled = weights * factor.reshape(-1, *[1] * (weights.ndim - 1))
    addend = bias.astype(np.float64) * factor + beta - mean * factor
    if not (np.isfinite(scaled).all() and np.isfinite(addend).all()):
        return None
    operands = {
        1: document.add_constant(f"{norm.outputs[0]}_weights", scaled.astype(np.float32)),
        2: document.add_constant(f"{norm.outputs[0]}_bias", addend.astype(np.float32)),
    }
    return renamed(node, operands, norm.outputs[0])
