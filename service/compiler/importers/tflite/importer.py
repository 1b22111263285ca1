"""Converts a TFLite file to a QNN module."""

from __future__ import annotations

from dataclasses import replace

import tvm
from tvm import relax

from service.compiler.importers.builder.constants import Constants
from service.compiler.importers.builder.module import At, build_main, import_stage, param
from service.compiler.importers.detect import TFLITE
from service.compiler.importers.imported import ImportedModel
from service.compiler.importers.tflite.delegate import builtin_kernel, takes
from service.compiler.importers.tflite.dilation import join_dilated
from service.compiler.importers.tflite.file.metadata import metadata_of
from service.compiler.importers.tflite.file.reader import read_model
from service.compiler.importers.tflite.model import Model, State
from service.compiler.importers.tflite.node import Node, constant_of, constants_of
from service.compiler.importers.tflite.operators import RULES
from service.compiler.importers.tflite.signature import signature_of
from service.compiler.importers.tflite.support import check_support, dtypes_of
from service.compiler.importers.tflite.variables import find_states
from service.compiler.importers.tflite.zero_scales import replace_zero_scales
from service.compiler.qnn.graph import main_of, results_of, shape_of
from service.core.errors import MalformedModel


def import_model(data: bytes, at: At = lambda op, tensor: None) -> ImportedModel:
    """Returns the model that a TFLite file contains.

    Args:
        data: the file. Constants are copied into the module.
        at: called before each operator is converted, with the operator and its output's name. A supervisor can then
            report the operator if this process dies.

    Raises:
        MalformedModel: the file does not follow the format, or an operator's definition is invalid.
        Unsupported, UnsupportedOperator: the file is well formed, but cannot be compiled.
    """
    with import_stage():
        model = find_states(read_model(data))
        check_support(model)
        model = replace_zero_scales(join_dilated(model))
        module = _module(model, at)
        signature = signature_of(_with_outputs(model, module))
        return ImportedModel(module, signature, TFLITE, *metadata_of(data, signature))


def _module(model: Model, at: At) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    params = {index: _param(model, index, f"input_{position}") for position, index in enumerate(model.inputs)}
    for position, state in enumerate(model.states):
        params[state.tensor] = _param(model, state.tensor, f"state_{position}")
    values: dict[int, relax.Expr] = dict(params)
    constants = constants_of(model)

    def convert() -> list[relax.Expr]:
        for operator in model.operators:
            node = Node(model, operator, builder, values, constants, builtin_kernel, takes)
            at(operator.label, node.output.label)
            made = RULES[operator.name].converter(dtypes_of(model, operator))(node)
            results = made if isinstance(made, list) else [node.clipped(made)]
            for tensor, value in zip(node.outputs, results, strict=True):
                node.expect(tensor, value)
                values[tensor.index] = value
        computed = [_result(model, index, values, constants) for index in model.outputs]
        return [*computed, *(_left(model, state, values, constants) for state in model.states)]

    build_main(builder, [*params.values()], convert)
    return builder.get()


def _with_outputs(model: Model, module: tvm.IRModule) -> Model:
    """Returns `model` with the computed shapes of its outputs. The states come after the outputs."""
    found = dict(zip(model.outputs, map(shape_of, results_of(main_of(module))), strict=False))
    tensors = [
        replace(tensor, shape=found[tensor.index]) if tensor.index in found else tensor for tensor in model.tensors
    ]
    return replace(model, tensors=tuple(tensors))


def _result(model: Model, index: int, values: dict[int, relax.Expr], constants: Constants) -> relax.Expr:
    """Returns the value of an output: an operator's result, an input or a constant."""
    tensor = model.tensors[index]
    return values[index] if tensor.data is None else constant_of(constants, tensor, tensor.data)


def _left(model: Model, state: State, values: dict[int, relax.Expr], constants: Constants) -> relax.Expr:
    """Returns the value that `state` has after a call."""
    tensor = model.tensors[state.result]
    if tensor.data is None and state.result not in values:
        raise MalformedModel(f"{tensor.label} is assigned to the variable {state.name}, but no operator computes it")
    value = _result(model, state.result, values, constants)
    found, kept = (str(value.ty.dtype), shape_of(value)), (state.initial.dtype.name, state.initial.shape)
    if found != kept:
        name = state.name or tensor.label
        raise MalformedModel(f"the variable {name} is {kept}, but {found} is assigned to it", tensor=tensor.label)
    return value


def _param(model: Model, index: int, name: str) -> relax.Var:
    tensor = model.tensors[index]
    return param(name, tensor.shape, tensor.dtype)
