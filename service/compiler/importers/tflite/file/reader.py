"""Reads a verified TFLite file into a `Model`. Checks requirements of the format that the verifier cannot check."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import tflite

from service.compiler.importers.flatbuffer.kinds import Kind, Text, Vector
from service.compiler.importers.flatbuffer.verifier import verify
from service.compiler.importers.names import shortened
from service.compiler.importers.tflite.accessors import floats, int32_at, ints, text
from service.compiler.importers.tflite.file import schema
from service.compiler.importers.tflite.file.graph import check_graph
from service.compiler.importers.tflite.file.tensors import read_tensor
from service.compiler.importers.tflite.model import Model, Operator, OptionValue, Signature, Subgraph, Tensor, called_by
from service.core.errors import MalformedModel

_BUILTIN_OPERATORS: dict[int, str] = dict(tflite.utils.BUILTIN_OPCODE2NAME)


def read_model(data: bytes) -> Model:
    """Returns the model that a TFLite file contains.

    Takes time and memory in proportion to the file, because constants are views of `data`, never copies.

    Raises:
        MalformedModel: the file is not well formed.
        Unsupported: the model computes nothing.
    """
    verify(data, schema.MODEL)
    model = tflite.Model.GetRootAs(data, 0)
    if model.Version() != schema.VERSION:
        raise MalformedModel(f"the file has TFLite schema version {model.Version()}, not {schema.VERSION}")
    if not model.SubgraphsLength():
        raise MalformedModel("the file has no subgraph")
    codes = [_operator_name(model.OperatorCodes(index)) for index in range(model.OperatorCodesLength())]
    main = _subgraph(model, data, 0, codes)
    result = Model(
        **vars(main),
        signatures=tuple(_signatures(model)),
        other_entries=tuple(_other_entries(model)),
        size_bytes=len(data),
        subgraphs=_called(model, data, main, codes),
    )
    check_graph(result)
    return result


def _called(model: Any, data: bytes, main: Subgraph, codes: Sequence[str]) -> dict[int, Subgraph]:
    """Returns the subgraphs that the operators of `main` run, directly or through other subgraphs, each read once."""
    found: dict[int, Subgraph] = {}
    graphs = [main]
    for graph in graphs:
        for operator in graph.operators:
            for number in called_by(operator):
                if not 0 < number < model.SubgraphsLength():
                    raise MalformedModel(
                        f"{operator.label} calls subgraph {number}; the file has {model.SubgraphsLength()} subgraphs",
                        op=operator.label,
                    )
                if number not in found:
                    found[number] = _subgraph(model, data, number, codes)
                    graphs.append(found[number])
    return found


def _subgraph(model: Any, data: bytes, number: int, codes: Sequence[str]) -> Subgraph:
    subgraph = model.Subgraphs(number)
    read = Subgraph(
        tensors=tuple(read_tensor(model, data, subgraph, index) for index in range(subgraph.TensorsLength())),
        operators=tuple(
            replace(_operator(subgraph.Operators(index), index, codes), graph=number)
            for index in range(subgraph.OperatorsLength())
        ),
        inputs=ints(subgraph, "Inputs"),
        outputs=ints(subgraph, "Outputs"),
        number=number,
    )
    return replace(read, tensors=_with_empty_constants(read))


def _with_empty_constants(graph: Subgraph) -> tuple[Tensor, ...]:
    """Returns the tensors. A tensor without elements that no operator computes is treated as a constant. (Its buffer is
    empty, like that of a computed tensor.)
    """
    computed = {index for operator in graph.operators for index in operator.outputs} | set(graph.inputs)
    return tuple(
        replace(tensor, data=np.zeros(tensor.shape, tensor.dtype), storage=-1 - tensor.index)
        if 0 in tensor.shape and tensor.index not in computed and not tensor.is_constant and tensor.oddity is None
        else tensor
        for tensor in graph.tensors
    )


def _operator_name(code: Any) -> str:
    """Returns the name of a builtin operator; `CUSTOM(name)` for a custom operator.

    The older field contains codes up to 127, and the newer field all codes. The larger of the two values is used,
    because some writers leave the older field 0 (`GetBuiltinCode` in schema_utils.cc). For codes below 127, the
    `tflite` package's accessor of the newer field returns the older field, so this function reads the table directly.
    """
    slot, _ = schema.TABLES["OperatorCode"]["builtin_code"]
    builtin = max(code.DeprecatedBuiltinCode(), int32_at(code, slot))
    name = _BUILTIN_OPERATORS.get(builtin, f"BUILTIN_{builtin}")
    return f"CUSTOM({shortened(text(code.CustomCode()))})" if name == "CUSTOM" else name


def _operator(operator: Any, index: int, codes: Sequence[str]) -> Operator:
    if operator.OpcodeIndex() >= len(codes):
        raise MalformedModel(f"operator #{index} has operator code {operator.OpcodeIndex()}; the file has {len(codes)}")
    return Operator(
        index=index,
        name=codes[operator.OpcodeIndex()],
        inputs=ints(operator, "Inputs"),
        outputs=ints(operator, "Outputs"),
        options=_options(operator),
        custom_options=bytes(operator.CustomOptionsAsNumpy()) if operator.CustomOptionsLength() else b"",
        intermediates=ints(operator, "Intermediates"),
    )


def _options(operator: Any) -> dict[str, OptionValue] | None:
    """Returns the operator's options by the schema's field names. Returns None if the operator has no options, or if
    Octet does not read options of their type.
    """
    if name := schema.OPTIONS.get(operator.BuiltinOptionsType()):
        union = operator.BuiltinOptions()
    elif name := schema.OPTIONS_2.get(operator.BuiltinOptions2Type()):
        union = operator.BuiltinOptions2()
    else:  # the verifier has not checked options of other types
        return None
    if union is None:
        return None
    options = getattr(tflite, name)()
    options.Init(union.Bytes, union.Pos)
    return {field: _option(options, field, kind) for field, (_, kind) in schema.TABLES[name].items()}


def _option(options: Any, field: str, kind: Kind) -> OptionValue:
    name = schema.accessor(field)
    if isinstance(kind, Vector):
        # rules know which of their options are real
        return cast(OptionValue, floats(options, name)) if field in schema.REAL_VECTORS else ints(options, name)
    value: Any = getattr(options, name)()
    return text(value) if isinstance(kind, Text) else cast(OptionValue, value)


def _signatures(model: Any) -> Iterator[Signature]:
    for index in range(model.SignatureDefsLength()):
        signature = model.SignatureDefs(index)
        if signature.SubgraphIndex() == 0:
            yield Signature(
                text(signature.SignatureKey()),
                tuple(_names(signature.Inputs(i) for i in range(signature.InputsLength()))),
                tuple(_names(signature.Outputs(i) for i in range(signature.OutputsLength()))),
            )


def _other_entries(model: Any) -> Iterator[str]:
    """Yields the keys of the signatures that run another subgraph than the first."""
    for index in range(model.SignatureDefsLength()):
        signature = model.SignatureDefs(index)
        if signature.SubgraphIndex() != 0:
            yield text(signature.SignatureKey())


def _names(maps: Iterable[Any]) -> Iterator[tuple[str, int]]:
    return ((text(entry.Name()), entry.TensorIndex()) for entry in maps)
