"""Converts an exported program to a QNN module."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from tvm import relax

from service.compiler.importers.archive import Archive
from service.compiler.importers.builder.module import (
    At,
    Shapes,
    agreed_shape,
    build_main,
    check_names,
    import_stage,
    param,
)
from service.compiler.importers.detect import PT2
from service.compiler.importers.imported import ImportedModel
from service.compiler.importers.names import printable
from service.compiler.importers.torch.exported.fusing import fused
from service.compiler.importers.torch.exported.program import QUANTIZE, Call, End, Operand, Program
from service.compiler.importers.torch.exported.reader import read_program
from service.compiler.importers.torch.graph import Graph
from service.compiler.importers.torch.importer import computed, outputs_of
from service.compiler.importers.torch.signature import output_specs, spec_of
from service.compiler.importers.torch.tensors import Spec
from service.compiler.importers.torch.values import Value
from service.core.errors import Unsupported
from service.core.models.signature import ModelSignature, TensorSpec


def import_exported(data: bytes, at: At = lambda op, tensor: None, shapes: Shapes | None = None) -> ImportedModel:
    """Returns the model in a file that `torch.export.save` wrote. A batch size that the program leaves open becomes 1.

    Args:
        at: called before each operator is converted, with the operator and the tensor that it computes.
        shapes: name of an input with open dimensions -> its shape; "" means the only input.

    Raises:
        MalformedModel: the file is not well formed.
        Unsupported, UnsupportedOperator: the file is well formed, but cannot be compiled.
    """
    with import_stage():
        return _imported(read_program(Archive(data, in_folder=True)), at, shapes or {})


def _imported(program: Program, at: At, shapes: Shapes) -> ImportedModel:
    calls, constants = fused(program)
    specs = _input_specs(program.inputs, shapes)
    params = [param(f"input_{index}", spec.shape, spec.dtype.name) for index, spec in enumerate(specs)]
    builder = relax.BlockBuilder()
    graph = Graph(builder, at)
    values: dict[str, Any] = dict(constants)
    values |= {end.name: Value(each) for end, each in zip(program.inputs, params, strict=True)}
    results: list[tuple[str | None, Value]] = []

    def convert() -> Iterator[relax.Expr]:
        for call in calls:
            _convert(graph, call, values)
        graph.check()
        results.extend(outputs_of([values[name] for name in program.outputs]))
        return (computed(builder, value, params) for _, value in results)

    build_main(builder, params, convert)
    return ImportedModel(builder.get(), ModelSignature(specs, output_specs(results)), PT2)


def _convert(graph: Graph, call: Call, values: dict[str, Any]) -> None:
    """Adds the results of `call` to `values`."""
    operands = [values[name] for name in call.inputs]
    for position, quantized in call.types.items():
        if isinstance(operands[position], Value):
            operands[position] = replace(operands[position], quantized=quantized)
    arguments = [_filled(argument, operands) for argument in call.arguments]
    named = {name: _filled(argument, operands) for name, argument in call.named.items()}
    if call.op_type.startswith("octet::"):
        named["out_type"] = call.quantized
        if call.op_type != QUANTIZE:
            named["clamp"] = call.clamp
    result = graph.call(call.op_type, call.outputs[0], arguments, named)
    several = isinstance(result, list | tuple) and len(call.outputs) > 1
    results = list(result) if several else [result] * len(call.outputs)
    if several and len(results) != len(call.outputs):
        raise Unsupported(
            f"{call.label} has {len(call.outputs)} results, of which {len(results)} can be compiled",
            op=call.label,
            tensor=call.outputs[0],
        )
    values |= dict(zip(call.outputs, results, strict=True))


def _filled(argument: Any, operands: Sequence[Any]) -> Any:
    if isinstance(argument, list):
        return [_filled(each, operands) for each in argument]
    return operands[argument.place] if isinstance(argument, Operand) else argument


def _input_specs(inputs: Sequence[End], shapes: Shapes) -> tuple[TensorSpec, ...]:
    check_names(shapes, [end.name for end in inputs])
    if not inputs:
        raise Unsupported("the model has no inputs")
    return tuple(_input_spec(end, shapes) for end in inputs)


def _input_spec(end: End, shapes: Shapes) -> TensorSpec:
    shape = agreed_shape(printable(end.name), end.shape, shapes.get(end.name, shapes.get("")))
    return spec_of(end.name, Spec(end.dtype, shape))
