"""Evaluates quantized operators on shapes. Exporters compute sizes and pads in float32 (`SAME` padding of TensorFlow's
networks), and quantizers put conversions and quantized operators among these computations. Their results are known
while importing, as shapes are: the oracle computes them.
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
from service.core.numerics import ONNXRUNTIME

_LONGEST = 16  # elements of a row of sizes
Convert = Callable[[Node], Value | tuple[Value, ...]]


def folds(node: Node) -> bool:
    """Returns true if a quantized operator reads only constant rows that are as short as shapes."""
    operator = node.operator
    if not (is_quantized(operator.op_type) or operator.op_type.startswith("octet.")) or len(operator.outputs) != 1:
        return False
    given = [node.known_value(place) for place in range(node.input_count) if node.has(place)]
    rows = [each for each in given if each is not None]
    return len(rows) == len(given) and all(row.ndim <= 1 and row.size <= _LONGEST for row in rows)


def folded(node: Node, convert: Convert) -> Value:
    """Returns what `convert` would compute when the model runs. The output's type is recorded as usual."""
    builder = relax.BlockBuilder()
    state = replace(node.state, builder=builder)
    with builder.function("main", []):
        with builder.dataflow():
            made = convert(Node(state, node.operator, folds_large=False))
            if isinstance(made, tuple | np.ndarray):
                made = state.constants.expr("", np.asarray(made))
            output = builder.emit_output(made)
        builder.emit_func_output(output)
    return np.asarray(oracle.run(builder.get(), get_mode(ONNXRUNTIME), [])[0])
