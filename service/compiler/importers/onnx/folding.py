"""Evaluates quantized operators on shapes. Exporters compute sizes and pads in float32 (for TensorFlow's `SAME`
padding), and quantizers insert conversions and quantized operators into these computations. Shapes are constant during
the import, so the oracle can compute the results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from tvm import relax

from service.compiler.importers.onnx.node import Node, Value
from service.compiler.importers.onnx.support import is_quantized
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME

_LONGEST = 16  # the largest number of elements in a list of sizes
Convert = Callable[[Node], Value | tuple[Value, ...]]


def folds(node: Node) -> bool:
    """Returns true if all operands of a quantized operator are constants and no longer than a shape."""
    operator = node.operator
    if not (is_quantized(operator.op_type) or operator.op_type.startswith("octet.")) or len(operator.outputs) != 1:
        return False
    given = [node.known_value(index) for index in range(node.input_count) if node.has(index)]
    rows = [each for each in given if each is not None]
    return len(rows) == len(given) and all(row.ndim <= 1 and row.size <= _LONGEST for row in rows)


def folded(node: Node, convert: Convert) -> Value:
    """Returns the elements that `convert` would compute when the model runs. The type of the output is recorded as
    usual.
    """
    builder = relax.BlockBuilder()
    state = replace(node.state, builder=builder)
    with builder.function("main", []):
        with builder.dataflow():
            made = convert(Node(state, node.operator, folds_large=False))
            if isinstance(made, tuple | np.ndarray):
                made = state.constants.expr(None, np.asarray(made), "")
            output = builder.emit_output(made)
        builder.emit_func_output(output)
    return np.asarray(oracle.run(builder.get(), get_mode(ONNXRUNTIME), [])[0])
