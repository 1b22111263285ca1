"""QLinearConcat, and Concat of tensors that need no conversion."""

from __future__ import annotations

import numpy as np
from tvm import relax

from service.compiler.importers.builder import movement
from service.compiler.importers.onnx.node import Node, Value
from service.compiler.qnn import ops


def qlinear_concat(node: Node) -> relax.Var:
    """Inputs: Y_scale, Y_zero_point, and tensor, scale and zero point of each part (com.microsoft)."""
    node.require(
        node.input_count >= 5 and node.input_count % 3 == 2, f"has {node.input_count} inputs, not 2 and 3 for each part"
    )
    positions = range(2, node.input_count, 3)
    in_types = [node.quantized(position, position + 1, position + 2) for position in positions]
    out_type = node.output_type(0, 1, in_types[0].storage)
    storages = sorted({in_type.storage for in_type in in_types} | {out_type.storage})
    node.require_supported(
        len(storages) == 1, f"mixes stored values of {', '.join(storages)}, which cannot be compiled"
    )
    axis = movement.joined_axis(node, [node.shape(position) for position in positions], node.attribute("axis", 1))
    call = ops.concatenate([node.expr(position) for position in positions], in_types, out_type, axis)
    return node.typed(node.emit(call), out_type)


def concat(node: Node) -> Value:
    """Concatenates shapes while importing, and tensors of one type when the model runs."""
    positions = range(node.input_count)
    axis = movement.joined_axis(node, [node.shape(position) for position in positions], node.attribute("axis", 1))
    known = [node.known_value(position) for position in positions]
    if all(data is not None for data in known):
        return node.folded(np.concatenate([data for data in known if data is not None], axis))
    node.require(len({node.dtype(position) for position in positions}) == 1, "joins tensors of different types")
    filled = [position for position in positions if 0 not in node.shape(position)]
    result = node.emit(relax.op.concat([node.expr(position) for position in filled], axis))
    types = [node.state.types.get(node.name(position)) for position in positions]
    return node.typed(result, types[0]) if types[0] is not None and len(set(types)) == 1 else result
