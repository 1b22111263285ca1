"""Imports an archive of a symbol and its parameters as a QNN module."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from tvm import relax

from service.compiler.importers.detect import MXNET
from service.compiler.importers.imported import ImportedModel
from service.compiler.importers.mxnet.node import Node, Tensor, Value
from service.compiler.importers.mxnet.operators import RULES
from service.compiler.importers.mxnet.package import SHAPE_ATTRIBUTE, unpack
from service.compiler.importers.mxnet.params import read_params
from service.compiler.importers.mxnet.symbol import VARIABLE, Entry, Symbol, SymbolNode, read_symbol
from service.compiler.importers.names import join_names
from service.core.builds.build import Stage
from service.core.errors import MalformedModel, NotQuantized, OctetError, Unsupported, UnsupportedOperator
from service.core.models.arrays import Array
from service.core.models.signature import ModelSignature, TensorSpec, datatype_of

At = Callable[[str, str], None]

_MOST_ELEMENTS = 1 << 31
_NAME_LENGTH = 256
_FLOAT32 = "0"  # mshadow's type flag of float32
_DTYPE_ATTRIBUTE = "__dtype__"


def import_model(
    data: bytes, at: At = lambda op, tensor: None, shapes: Mapping[str, Sequence[int]] | None = None
) -> ImportedModel:
    """Imports the model in an archive of a symbol and its parameters.

    Args:
        data: the file. Constants are copied into the module.
        at: called with every operator, and the name of its output, before the operator is converted.
        shapes: input name -> shape, for inputs whose shape the symbol does not contain; "" means the only input.

    Raises:
        MalformedModel: the file is not well formed, or an operator's definition is invalid.
        Unsupported, UnsupportedOperator: the model is well formed, but a part of it cannot be compiled.
    """
    try:
        symbol, params = unpack(data)
        return _Importer(read_symbol(symbol), read_params(params), at).model(shapes or {})
    except OctetError as exc:
        exc.stage = exc.stage or Stage.IMPORT
        raise


class _Importer:
    def __init__(self, symbol: Symbol, params: dict[str, Array], at: At) -> None:
        self.symbol, self.params, self.at = symbol, params, at
        labels = _labels(symbol.nodes)
        variables = [node for node in symbol.nodes if node.op == VARIABLE and node.name not in params]
        self.inputs = [node for node in variables if node.index not in labels]
        self.values: dict[Entry, Value] = {}

    def model(self, shapes: Mapping[str, Sequence[int]]) -> ImportedModel:
        check_support(self.symbol.nodes)
        if not self.inputs:
            raise Unsupported("the model has no inputs")
        specs = [_input_spec(node, shape) for node, shape in zip(self.inputs, self._given(shapes), strict=True)]
        builder = relax.BlockBuilder()
        with builder.function("main", self._params(specs)):
            with builder.dataflow():
                self._convert(builder)
                heads = self._heads()
                outputs = [builder.emit_output(head.expr) for head in heads]
            builder.emit_func_output(outputs[0] if len(outputs) == 1 else relax.Tuple(outputs))
        signature = ModelSignature(_unique(specs), self._output_specs(heads))
        return ImportedModel(builder.get(), signature, MXNET)

    def _given(self, shapes: Mapping[str, Sequence[int]]) -> list[tuple[int, ...]]:
        """Returns the given shape of each input, or () for inputs without one."""
        names = [node.name for node in self.inputs]
        unknown = sorted(shapes.keys() - set(names) - ({""} if len(names) == 1 else set()))
        if unknown:
            raise Unsupported(
                f"shapes are given for inputs that the model does not have: {join_names(unknown)}",
                hint=f"the inputs are {join_names(names)}",
            )
        return [tuple(shapes.get(name) or shapes.get("") or ()) for name in names]

    def _params(self, specs: Sequence[TensorSpec]) -> list[relax.Var]:
        params = []
        for index, (node, spec) in enumerate(zip(self.inputs, specs, strict=True)):
            params.append(relax.Var(f"input_{index}", relax.TensorType(list(spec.shape), "float32")))
            self.values[node.index, 0] = Tensor(params[-1], "float32", spec.shape)
        return params

    def _convert(self, builder: relax.BlockBuilder) -> None:
        for node in self.symbol.nodes:
            if node.op != VARIABLE:
                self.at(node.label, node.name)
                for position, value in enumerate(RULES[node.op](Node(node, self.values, builder))):
                    self.values[node.index, position] = value
            elif node.name in self.params:
                self.values[node.index, 0] = self.params[node.name]

    def _heads(self) -> list[Tensor]:
        heads = []
        given = [self.values[node.index, 0] for node in self.inputs]
        for entry in self.symbol.heads:
            label, value = self.symbol.nodes[entry[0]].label, self.values.get(entry)
            if value is None:
                raise MalformedModel(f"the model's output is output {entry[1]} of {label}, which has fewer", op=label)
            if not isinstance(value, Tensor) or value in given or value.pending is not None:
                raise Unsupported(
                    f"the model's output is output {entry[1]} of {label}, which is not a computed tensor", op=label
                )
            heads.append(value)
        return heads

    def _output_specs(self, heads: Sequence[Tensor]) -> tuple[TensorSpec, ...]:
        """Returns the outputs with the names that MXNet gives them (`Symbol.list_outputs`)."""
        nodes = [self.symbol.nodes[node] for node, _ in self.symbol.heads]
        return _unique(
            [
                TensorSpec(f"{_clean(node.name)}_output", datatype_of(head.dtype), head.shape)
                for node, head in zip(nodes, heads, strict=True)
            ]
        )


def _labels(nodes: Sequence[SymbolNode]) -> set[int]:
    """Returns the variables that only a `SoftmaxOutput` reads, as labels. Labels are used in training only."""
    readers: dict[int, set[bool]] = {}
    for node in nodes:
        for position, (index, _) in enumerate(node.inputs):
            readers.setdefault(index, set()).add(node.op == "SoftmaxOutput" and position == 1)
    return {index for index, are_labels in readers.items() if are_labels == {True}}


def check_support(nodes: Sequence[SymbolNode]) -> None:
    """Checks that every operator can be converted.

    Raises:
        NotQuantized: some operators cannot be converted, and none of the model's operators is quantized.
        UnsupportedOperator: some operators cannot be converted. The message lists at most `names.MOST_NAMES` of these
            operators, and as many types.
    """
    operators = [node for node in nodes if node.op != VARIABLE]
    if not operators:
        raise Unsupported("the model has no operators")
    obstacles = [node for node in operators if node.op not in RULES]
    if not obstacles:
        return
    counted = Counter(_clean(node.op) for node in obstacles)
    kinds = [f"{op} ({number} times)" if number > 1 else op for op, number in counted.items()]
    quantized = any("quantize" in node.op or node.attributes.flag("quantized") for node in operators)
    if not quantized:
        raise NotQuantized(
            f"this model is not quantized: none of its {len(operators)} operators is quantized ({join_names(kinds)})",
            op=obstacles[0].label,
            tensor=_clean(obstacles[0].name),
            hint="quantize it with mxnet.contrib.quantization.quantize_model_mkldnn",
        )
    raise UnsupportedOperator(
        f"{len(obstacles)} of {len(operators)} operators cannot be compiled: {join_names(kinds)}. "
        f"They are: {join_names([node.label for node in obstacles])}",
        op=obstacles[0].label,
        tensor=_clean(obstacles[0].name),
        hint=f"Octet compiles: {', '.join(sorted(RULES))}; quantize or cut off the others",
    )


def _input_spec(node: SymbolNode, given: tuple[int, ...]) -> TensorSpec:
    shape = given or node.attributes.integers(SHAPE_ATTRIBUTE, least=-1)
    name = _clean(node.name)
    if not shape or any(size < 1 for size in shape):
        raise Unsupported(
            f"the input {name} has no fixed shape, because MXNet's files do not store it"
            + (f", and this one stores {list(shape)}" if shape else ""),
            tensor=name,
            hint=f"give it: --input-shape {name}=1,3,224,224",
        )
    if len(shape) > 8 or int(np.prod(shape, dtype=object)) > _MOST_ELEMENTS:
        raise Unsupported(f"the input {name} has the shape {list(shape)}, which is too large", tensor=name)
    if node.attributes.text(_DTYPE_ATTRIBUTE, _FLOAT32) not in (_FLOAT32, "-1"):
        raise Unsupported(f"the input {name} is not float32", tensor=name)
    return TensorSpec(name, datatype_of("float32"), shape)


def _unique(specs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
    names = [spec.name for spec in specs]
    if len(set(names)) != len(names):
        raise MalformedModel(f"two inputs or two outputs have the same name: {join_names(names)}")
    return tuple(specs)


def _clean(name: str) -> str:
    """Returns a name that can safely be part of a JSON document, a log line or terminal output."""
    return "".join(char if char.isprintable() else "_" for char in name)[:_NAME_LENGTH]
