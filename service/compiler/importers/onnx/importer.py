"""Imports an ONNX file as a QNN module."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from tvm import relax

from service.compiler.importers.builder.fixing import Declared, check_inputs, elements_of, fixed_inputs
from service.compiler.importers.builder.module import At, Shapes, build_main, import_stage, param
from service.compiler.importers.detect import ONNX
from service.compiler.importers.imported import ImportedModel
from service.compiler.importers.names import shortened
from service.compiler.importers.onnx.converting import converted
from service.compiler.importers.onnx.file.metadata import metadata_of
from service.compiler.importers.onnx.file.reader import read_model
from service.compiler.importers.onnx.free_rows import filled, keep_rows_free, notice_of
from service.compiler.importers.onnx.half.carrying import carry_halves
from service.compiler.importers.onnx.half.ends import with_wide_ends
from service.compiler.importers.onnx.half.shapes import notices_of_small_reals
from service.compiler.importers.onnx.int8_activations import (
    int8_blocks,
    quantize_activations,
    with_unrounded_weights,
)
from service.compiler.importers.onnx.model import End, Items, Model, Tensor
from service.compiler.importers.onnx.node import Node, State, Value
from service.compiler.importers.onnx.qdq.operators import fuse
from service.compiler.importers.onnx.rewrites.conditions import resolved
from service.compiler.importers.onnx.rewrites.constants import fold_constants
from service.compiler.importers.onnx.rewrites.deciding import with_advice
from service.compiler.importers.onnx.rewrites.pads import merge_pads
from service.compiler.importers.onnx.rewrites.pairs import merge_pairs
from service.compiler.importers.onnx.rewrites.redundant import drop_redundant_activations
from service.compiler.importers.onnx.rewrites.rounding import round_products
from service.compiler.importers.onnx.rewrites.written_out import read_dequantizations
from service.compiler.importers.onnx.rewrites.zero_scales import without_zero_scales
from service.compiler.importers.onnx.signature import Shape, check_sendable, input_shape, signature_of
from service.compiler.importers.onnx.support import check_support
from service.compiler.qnn.graph import shape_of
from service.core.builds.fixed import Fixed
from service.core.errors import MalformedModel, Unsupported
from service.core.models.signature import FixedInput
from service.core.verification.free_rows import COUNT

_MOST_SIZES = 8  # at most this many sizes of a declared shape are shown in a notice


def import_model(
    data: bytes, at: At = lambda op, tensor: None, shapes: Shapes | None = None, fixed: Fixed | None = None
) -> ImportedModel:
    """Imports the model in an ONNX file. A batch size that the file leaves open becomes 1.

    Args:
        data: the file. Constants are copied into the module.
        at: called before each operator is converted, with the operator and the name of its output. The caller can then
            report the operator if this process dies.
        shapes: input name -> shape, for inputs with dimensions that the file leaves open. "" means the only input.
        fixed: input name -> the elements of an input that becomes a constant.

    Raises:
        MalformedModel: the file is not well formed, or an operator's definition is invalid.
        Unsupported, UnsupportedOperator: the model is well formed, but a part of it cannot be compiled.
    """
    with import_stage():
        read, widened = with_wide_ends(read_model(data))
        complete, constants = _with_fixed(read, shapes or {}, fixed or {})
        try:
            imported = _rewritten(round_products(complete), at, shapes or {})
        except (MalformedModel, Unsupported) as error:
            raise with_advice(error, complete) from error
        signature = replace(imported.signature, fixed=constants)
        return replace(imported, signature=signature, notices=(*imported.notices, *widened))


def _rewritten(read: Model, at: At, shapes: Shapes) -> ImportedModel:
    """Rewrites the graph of the file into one without subgraphs and pairs of conversions, and imports that."""
    params = [_param(end, index, shapes) for index, end in enumerate(read.inputs)]
    merged, notices = merge_pads(resolved(carry_halves(read, params), params))
    notices += notices_of_small_reals(read)
    folded = fold_constants(read_dequantizations(merged))
    needed, dropped = drop_redundant_activations(merge_pairs(without_zero_scales(folded)))
    model = with_unrounded_weights(fuse(needed))
    check_support(model)
    imported = _imported(model, at, params)
    return replace(imported, notices=(*imported.notices, *notices, *dropped))


def _with_fixed(model: Model, shapes: Shapes, fixed: Fixed) -> tuple[Model, tuple[FixedInput, ...]]:
    """Returns `model` with the fixed inputs as constants, and these inputs."""
    check_inputs([end.name for end in model.inputs], shapes, fixed)
    inputs = [Declared(end.name, end.dtype, end.shape) for end in model.inputs]
    found = fixed_inputs(inputs, shapes, fixed)
    if not found:
        return model, ()
    constants = {
        name: Tensor(name, declared.dtype, each.spec.shape, elements_of(each))
        for each in found
        for declared in [inputs[each.index]]
        for name in [declared.name]
    }
    left = tuple(end for end in model.inputs if end.name not in fixed)
    return replace(model, inputs=left, constants={**model.constants, **constants}), found


def _imported(model: Model, at: At, params: Sequence[relax.Var]) -> ImportedModel:
    builder = relax.BlockBuilder()
    values: dict[str, Value] = {end.name: param for end, param in zip(model.inputs, params, strict=True)}
    values |= {name: tensor.data for name, tensor in model.constants.items() if tensor.data is not None}
    state = State(model, builder, values)

    state.blocks = int8_blocks(model)

    def convert() -> list[relax.Expr]:
        for operator in model.operators:
            at(operator.label, shortened(Node(state, operator).output))
            state.values |= converted(state, operator)
            keep_rows_free(state, operator)
        counts = [state.free[end.name][0] for end in model.outputs if end.name in state.free]
        return [*(_result(state, end) for end in model.outputs), *counts]

    outputs = build_main(builder, params, convert)
    described = [_described(output) for output in outputs]
    free = [end.name for end in model.outputs if end.name in state.free]
    counts = [End(f"{name}{COUNT}", "int64", (1,)) for name in free]
    model = replace(model, outputs=(*model.outputs, *counts))
    signature = signature_of(model, map(_described, params), described, state.types.get)
    metadata, notices = metadata_of(model.metadata_text, signature)
    module = quantize_activations(builder.get(), state.products)
    notices = (*notices, *_contradictions(model, described), *map(notice_of, free))
    return ImportedModel(module, signature, ONNX, metadata, notices)


def _result(state: State, end: End) -> relax.Expr:
    """Returns an output after checking its type against the file. A scalar loses the axes of length 1 that it had
    during the conversion.
    """
    label = shortened(end.name)
    if end.name not in state.values:
        raise Unsupported(f"the output {label} cannot be compiled", tensor=label)
    value = state.values[end.name]
    if isinstance(value, Items):
        raise Unsupported(f"the output {label} is a sequence, which cannot be sent", tensor=label)
    if isinstance(value, np.ndarray):
        value = state.constants.expr(end.name, value, label)
    if end.name in state.loose:
        value = state.builder.emit(relax.op.reshape(value, ()))
    if end.name in state.free:
        value = filled(state, end.name, value)
    shape, dtype = _described(value)
    for each in filter(None, (end.dtype, dtype)):  # 4-bit values are computed in bytes
        check_sendable(replace(end, dtype=each), "output")
    if 0 in shape:
        raise Unsupported(
            f"the output {label} of {list(shape)} has no elements", tensor=label, hint="export without it"
        )
    if end.dtype not in ("", dtype):
        raise MalformedModel(f"the output {label} is {dtype}, but the file declares {end.dtype}", tensor=label)
    return value


def _contradictions(model: Model, outputs: Sequence[tuple[Shape, str]]) -> tuple[str, ...]:
    """Returns a sentence for each output whose shape differs from its declaration in the file. The declaration has no
    effect, as in ONNX Runtime; many exporters declare the shape for another input there.
    """
    found = []
    for end, (shape, _) in zip(model.outputs, outputs, strict=True):
        sizes = end.shape if end.shape is not None else (None,) * len(shape)
        differs = any(isinstance(size, int) and size != own for size, own in zip(sizes, shape, strict=False))
        if len(sizes) != len(shape) or differs:
            shown = ", ".join("?" if size is None else str(size) for size in sizes[:_MOST_SIZES])
            found.append(
                f"the file declares the output {shortened(end.name)} as [{shown}], "
                f"but its operators make {list(shape)}: the build follows the operators"
            )
    return tuple(found)


def _param(end: End, index: int, shapes: Shapes) -> relax.Var:
    shape = input_shape(end, shapes.get(end.name, shapes.get("")))
    return param(f"input_{index}", shape, end.dtype)


def _described(value: relax.Expr) -> tuple[tuple[int, ...], str]:
    return shape_of(value), str(value.ty.dtype)
