"""Finds the shapes of a graph's tensors, by converting its operators once as if its 16-bit values were float32."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from tvm import relax

from service.compiler.importers.onnx.file.branches import IF
from service.compiler.importers.onnx.file.tensors import SMALL_REALS
from service.compiler.importers.onnx.half.types import CARRIED, NUMBERS, TYPE_ATTRIBUTES, output_types, widened
from service.compiler.importers.onnx.model import Model
from service.compiler.importers.onnx.node import State, Value
from service.compiler.importers.onnx.rewrites.conditions import convert_if_possible
from service.compiler.importers.onnx.rewriting import OnnxGraph
from service.compiler.importers.qdq import Operator
from service.compiler.qnn.graph import shape_of
from service.core.errors import OctetError


def types_of(model: Model) -> dict[str, str]:
    """Returns the type of each tensor outside of branches, by name; "" if it is not known."""
    types = {end.name: end.dtype for end in model.inputs}
    types |= {name: tensor.dtype for name, tensor in model.constants.items()}
    for operator in model.operators:
        types |= zip(operator.outputs, output_types(operator, types), strict=False)
    return types


def notices_of_small_reals(model: Model) -> tuple[str, ...]:
    """Returns a sentence if the graph contains real values of 8 or 4 bits."""
    found = sorted({dtype for dtype in types_of(model).values() if dtype in SMALL_REALS})
    if not found:
        return ()
    return (
        f"the model has values of {', '.join(found)}: the build computes with them in float32, and not in 8 bits; "
        "quantize the model to int8 to be faster",
    )


def static_shapes(model: Model, params: Sequence[relax.Var]) -> dict[str, tuple[int, ...]]:
    """Returns the shapes that the file determines. Shapes that depend on an operator that cannot be converted, or on an
    `If`, are missing.

    Args:
        params: the graph's inputs.
    """
    real = replace(
        model,
        operators=tuple(map(_in_float32, model.operators)),
        constants={name: widened(tensor) for name, tensor in model.constants.items()},
    )
    builder = relax.BlockBuilder()
    values: dict[str, Value] = {name: tensor.data for name, tensor in real.constants.items() if tensor.data is not None}
    state = State(real, builder, values)
    failures: dict[str, OctetError] = {}
    with builder.function("main", list(params)):
        with builder.dataflow():
            for end, param in zip(model.inputs, params, strict=True):
                is_half = end.dtype in CARRIED
                values[end.name] = builder.emit(relax.op.astype(param, "float32")) if is_half else param
            for operator in real.operators:
                if operator.op_type != IF:
                    convert_if_possible(state, operator, failures)
            end_value = builder.emit_output(relax.const(np.zeros((), np.int32)))
        builder.emit_func_output(end_value)
    known = OnnxGraph.whole(model)
    return {
        name: value.shape if isinstance(value, np.ndarray) else shape_of(value)
        for name, value in state.values.items()
        if known.has_known_shape(name)
    }


def _in_float32(operator: Operator) -> Operator:
    attributes = {name: _float32_attribute(name, value) for name, value in operator.attributes.items()}
    return replace(operator, attributes=attributes)


def _float32_attribute(name: str, value: object) -> object:
    is_half = name in TYPE_ATTRIBUTES and value in [NUMBERS[dtype] for dtype in CARRIED]
    return NUMBERS["float32"] if is_half else widened(value)
