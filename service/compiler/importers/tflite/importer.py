"""Converts a TFLite file to a QNN module."""

from __future__ import annotations

from dataclasses import replace

import tvm
from tvm import relax

from service.compiler.importers.builder.module import At, Shapes, build_main, import_stage, param
from service.compiler.importers.detect import TFLITE
from service.compiler.importers.imported import ImportedModel
from service.compiler.importers.names import join_names, printable, shortened
from service.compiler.importers.tflite.converting import Converter
from service.compiler.importers.tflite.dilation import join_dilated
from service.compiler.importers.tflite.file.metadata import metadata_of
from service.compiler.importers.tflite.file.reader import read_model
from service.compiler.importers.tflite.model import Model
from service.compiler.importers.tflite.shapes import naming_shapes, open_inputs, with_fixed, with_shapes
from service.compiler.importers.tflite.signature import signature_of
from service.compiler.importers.tflite.support import check_support
from service.compiler.importers.tflite.variables import find_states
from service.compiler.importers.tflite.zero_scales import replace_zero_scales
from service.compiler.qnn.graph import main_of, results_of, shape_of
from service.core.builds.fixed import Fixed, without_fixed


def import_model(
    data: bytes, at: At = lambda op, tensor: None, shapes: Shapes | None = None, fixed: Fixed | None = None
) -> ImportedModel:
    """Returns the model that a TFLite file contains.

    Args:
        data: the file. Constants are copied into the module.
        at: called before each operator is converted, with the operator and its output's name. A supervisor can then
            report the operator if this process dies.
        shapes: input name -> the shape that the input gets instead of the file's; "" means the only input.
        fixed: input name -> the elements of an input that becomes a constant.

    Raises:
        InvalidInput: an input does not exist, or a shape has another number of dimensions.
        MalformedModel: the file does not follow the format, or an operator's definition is invalid.
        Unsupported, UnsupportedOperator: the file is well formed, but cannot be compiled.
    """
    with import_stage():
        complete, constants = with_fixed(find_states(read_model(data)), shapes or {}, fixed or {})
        model = with_shapes(complete, without_fixed(shapes or {}, fixed or {}))
        check_support(model)
        model = replace_zero_scales(join_dilated(model))
        with naming_shapes(model, shapes or {}):
            module = _module(model, at)
        signature = replace(signature_of(_with_outputs(model, module)), fixed=constants)
        metadata, notices = metadata_of(data, signature)
        return ImportedModel(
            module, signature, TFLITE, metadata, (*_entry_notice(model), *_shape_notice(model, shapes), *notices)
        )


def _shape_notice(model: Model, shapes: Shapes | None) -> tuple[str, ...]:
    """Returns the notice for a file that leaves sizes open, if the user gives no shapes. LiteRT's interpreter runs it
    with one element there, unless its caller resizes the inputs.
    """
    found = open_inputs(model) if not shapes else []
    if not found:
        return ()
    return (f"sizes that the file leaves open are 1, choose others with --input-shape: {join_names(found)}",)


def _entry_notice(model: Model) -> tuple[str, ...]:
    """Returns the notice for a file with several entry points. LiteRT's interpreter runs the first subgraph, unless its
    caller names a signature.
    """
    if not model.other_entries:
        return ()
    names = join_names([shortened(printable(name)) for name in model.other_entries])
    first = f", {printable(model.signatures[0].key)}" if model.signatures else ""
    return (f"this is the file's first entry point{first}; choose another with --signature: {names}",)


def _module(model: Model, at: At) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    params = {index: _param(model, index, f"input_{position}") for position, index in enumerate(model.inputs)}
    for position, state in enumerate(model.states):
        params[state.tensor] = _param(model, state.tensor, f"state_{position}")
    converter = Converter(model, builder, at)
    build_main(builder, [*params.values()], lambda: converter.convert({**params}))
    return builder.get()


def _with_outputs(model: Model, module: tvm.IRModule) -> Model:
    """Returns `model` with the computed shapes of its outputs. The states come after the outputs."""
    found = dict(zip(model.outputs, map(shape_of, results_of(main_of(module))), strict=False))
    tensors = [
        replace(tensor, shape=found[tensor.index]) if tensor.index in found else tensor for tensor in model.tensors
    ]
    return replace(model, tensors=tuple(tensors))


def _param(model: Model, index: int, name: str) -> relax.Var:
    tensor = model.tensors[index]
    return param(name, tensor.shape, tensor.dtype)
