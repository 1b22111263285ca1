"""Reads a verified TFLite file into a `Model`. Checks requirements of the format that the verifier cannot check."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import tflite

from service.compiler.importers.names import shortened
from service.compiler.importers.tflite.accessors import int32_at, ints, text
from service.compiler.importers.tflite.file import schema
from service.compiler.importers.tflite.file.flatbuffer import verify
from service.compiler.importers.tflite.file.graph import check_graph
from service.compiler.importers.tflite.file.tensors import read_tensor
from service.compiler.importers.tflite.model import Model, Operator, OptionValue, Signature, Subgraph, Tensor
from service.core.errors import MalformedModel, Unsupported

_BUILTIN_OPERATORS: dict[int, str] = dict(tflite.utils.BUILTIN_OPCODE2NAME)


def read_model(data: bytes) -> Model:
    """Returns the model that a TFLite file contains.

    Takes time and memory in proportion to the file, because constants are views of `data`, never copies.

    Raises:
        MalformedModel: the file is not well formed.
        Unsupported: the model has several entry points, or computes nothing.
    """
    verify(data)
    model = tflite.Model.GetRootAs(data, 0)
    if model.Version() != schema.VERSION:
        raise MalformedModel(f"the file has TFLite schema version {model.Version()}, not {schema.VERSION}")
    _check_subgraphs(model)
    codes = [_operator_name(model.OperatorCodes(index)) for index in range(model.OperatorCodesLength())]
    main = _subgraph(model, data, 0, codes)
    result = Model(
        **vars(main),
        signatures=tuple(_signatures(model)),
        size_bytes=len(data),
        initializers={number: _subgraph(model, data, number, codes) for number in _initializers(model, main)},
    )
    check_graph(result)
    return result


def _subgraph(model: Any, data: bytes, number: int, codes: Sequence[str]) -> Subgraph:
    subgraph = model.Subgraphs(number)
    read = Subgraph(
        tensors=tuple(read_tensor(model, data, subgraph, index) for index in range(subgraph.TensorsLength())),
        operators=tuple(
            _operator(subgraph.Operators(index), index, codes) for index in range(subgraph.OperatorsLength())
        ),
        inputs=ints(subgraph, "Inputs"),
        outputs=ints(subgraph, "Outputs"),
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


def _initializers(model: Any, main: Subgraph) -> set[int]:
    """Returns the numbers of the subgraphs that are run once, before the first call."""
    found = set()
    for operator in main.operators:
        if operator.name == "CALL_ONCE":
            number = cast(int, (operator.options or {}).get("init_subgraph_index", 0))
            if not 0 < number < model.SubgraphsLength():
                raise MalformedModel(
                    f"{operator.label} calls subgraph {number}; the file has {model.SubgraphsLength()} subgraphs",
                    op=operator.label,
                )
            found.add(number)
    return found


def _check_subgraphs(model: Any) -> None:
    """Checks that the model has one entry point, which is the first subgraph. Other subgraphs belong to operators
    (CALL_ONCE; IF and WHILE, which `support` refuses), or are additional entry points.
    """
    if not model.SubgraphsLength():
        raise MalformedModel("the file has no subgraph")
    signatures = [model.SignatureDefs(index) for index in range(model.SignatureDefsLength())]
    others = [shortened(text(each.SignatureKey())) for each in signatures if each.SubgraphIndex() != 0]
    if others:
        left = ", ".join(others)
        raise Unsupported(
            f"the model has several entry points, but only the first can be compiled; {left} would be left out",
            hint="convert a model with one signature",
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
    name = schema.OPTIONS.get(operator.BuiltinOptionsType())
    if name is None:  # the verifier has not checked options of this type either
        return None
    union = operator.BuiltinOptions()
    if union is None:
        return None
    options = getattr(tflite, name)()
    options.Init(union.Bytes, union.Pos)
    return {field: _option(options, field, kind) for field, (_, kind) in schema.TABLES[name].items()}


def _option(options: Any, field: str, kind: schema.Kind) -> OptionValue:
    name = schema.accessor(field)
    if isinstance(kind, schema.Vector):
        return ints(options, name)
    value: Any = getattr(options, name)()
    return text(value) if isinstance(kind, schema.Text) else cast(OptionValue, value)


def _signatures(model: Any) -> Iterator[Signature]:
    for index in range(model.SignatureDefsLength()):
        signature = model.SignatureDefs(index)
        if signature.SubgraphIndex() == 0:
            yield Signature(
                text(signature.SignatureKey()),
                tuple(_names(signature.Inputs(i) for i in range(signature.InputsLength()))),
                tuple(_names(signature.Outputs(i) for i in range(signature.OutputsLength()))),
            )


def _names(maps: Iterable[Any]) -> Iterator[tuple[str, int]]:
    return ((text(entry.Name()), entry.TensorIndex()) for entry in maps)
