"""What is tidied before anything is quantized: copies go, and batch normalization becomes part of convolutions."""

from __future__ import annotations

import numpy as np

from service.quantize.document import Document, Node, renamed

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
