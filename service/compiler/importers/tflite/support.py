"""Checks whether a model can be compiled. Checks the whole file, so that the error lists every obstacle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NoReturn

from service.compiler.importers.builder.module import unsupported_operators
from service.compiler.importers.names import join_names
from service.compiler.importers.tflite.model import Operator, Subgraph, Tensor
from service.compiler.importers.tflite.operators import RULES
from service.compiler.importers.tflite.operators.rule import STORAGES, Rule
from service.core.errors import DynamicRange, MalformedModel, Unsupported

_CONVERT = (
    "convert it with full-integer quantization: tf.lite.TFLiteConverter with optimizations = "
    "[tf.lite.Optimize.DEFAULT] and a representative_dataset (docs/how-to/tflite.md)"
)
_FLEX = "CUSTOM(Flex"
# Operators for which LiteRT has kernels that quantize activations at run time.
_HYBRID = ("BATCH_MATMUL", "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "SVDF", "UNIDIRECTIONAL_SEQUENCE_LSTM")


def check_support(model: Subgraph) -> None:
    """Checks that every operator can be converted for the element types that it uses.

    Raises:
        DynamicRange: operators multiply real activations by stored weights, in a form that cannot be converted.
        UnsupportedOperator: some operators cannot be converted. The message lists their types and their names, at most
            `names.MOST_NAMES` of each.
        Unsupported: an operator uses a tensor that no operator can use.
        MalformedModel: an operator has a number of inputs or outputs that its definition forbids.
    """
    _require_stored_activations(model)
    obstacles = [(operator, what) for operator in model.operators if (what := _obstacle(model, operator))]
    if obstacles:
        _refuse(model, obstacles)
    for operator in model.operators:
        rule = RULES[operator.name]
        _check_arity(operator, rule)
        for tensor in _tensors(model, operator):
            _check_tensor(operator, tensor)
        for index in (*rule.activations_of(operator.inputs), *operator.outputs):
            if index >= 0 and 0 in model.tensors[index].shape and not rule.skips_empty:
                _refuse_tensor(operator, model.tensors[index], "has no elements")


def _require_stored_activations(model: Subgraph) -> None:
    """Refuses hybrid operators that cannot be converted. LiteRT's hybrid kernels quantize activations at run time and
    multiply integers. If such a model were computed in real arithmetic, half of its results would differ.
    """
    hybrid = [operator for operator in model.operators if _is_hybrid(model, operator)]
    if hybrid:
        raise DynamicRange(
            f"{len(hybrid)} of the model's {len(model.operators)} operators have weights of 8 or 4 bits and float32 "
            f"activations ({counted(operator.name for operator in hybrid)}), which LiteRT quantizes at run "
            "time; Octet supports this only for int8, int4 and int2 weights",
            op=hybrid[0].label,
            tensor=_output(model, hybrid[0]),
            hint=_CONVERT,
        )


def _is_hybrid(model: Subgraph, operator: Operator) -> bool:
    first, *others = dtypes_of(model, operator) or [""]
    rule = RULES.get(operator.name)
    taken = ("int8",) if rule is not None and rule.hybrid is not None else ()
    stored = {*others} & {"int8", "uint8", "int4"} - {*taken}
    return operator.name in _HYBRID and first == "float32" and bool(stored)


def counted(names: Iterable[str]) -> str:
    """Returns `12 CONV_2D, 3 ADD`: the most frequent types first, and at most `names.MOST_NAMES` types."""
    return join_names([f"{times} {name}" for name, times in Counter(names).most_common()])


def dtypes_of(model: Subgraph, operator: Operator) -> list[str]:
    """Returns the dtypes of an operator's inputs; "" for an input that is omitted."""
    return [model.tensors[index].dtype if index >= 0 else "" for index in operator.inputs]


def _obstacle(model: Subgraph, operator: Operator) -> str | None:
    """Returns what cannot be converted, as `CONV_3D` or `CONV_2D on float32`, or None if the operator can be
    converted.
    """
    rule = RULES.get(operator.name)
    if rule is None:
        return operator.name
    for dtype in _dtypes(model, rule.activations_of(operator.inputs)):
        if not rule.reads_dtype(dtype):
            return f"{operator.name} on {dtype}"
    for dtype in _dtypes(model, operator.outputs):
        if not rule.writes_dtype(dtype):
            return f"{operator.name} into {dtype}"
    return None


def _refuse(model: Subgraph, obstacles: list[tuple[Operator, str]]) -> None:
    each = [(what, f"{operator.label} → {_output(model, operator)}") for operator, what in obstacles]
    first, _ = obstacles[0]
    hint = _hint(model, obstacles)
    raise unsupported_operators(each, len(model.operators), first.label, _output(model, first), hint)


def _hint(model: Subgraph, obstacles: list[tuple[Operator, str]]) -> str:
    names = {operator.name for operator, _ in obstacles}
    if any(name.startswith(_FLEX) for name in names):
        return (
            "convert it without tf.lite.OpsSet.SELECT_TF_OPS: operators whose names begin with Flex are TensorFlow's, "
            "which LiteRT runs only with its Flex delegate"
        )
    if any(name.startswith("HASHTABLE") for name in names):
        return "convert the model without its table, and look words up before the model is called"
    kinds = {what.rsplit(" ", 1)[-1] for operator, what in obstacles if operator.name in RULES}
    if "float32" in kinds or "float16" in kinds:
        return "convert it with full-integer quantization, so that no operator is left in float"
    if all(what.endswith(" on int16") and RULES[each.name].reads & STORAGES for each, what in obstacles):
        return "quantize the activations to 8 bits: these operators cannot be compiled with 16-bit ones"
    cuts = _cuts(model, [each for each, _ in obstacles])
    return "convert the model without them" + (f", or cut it at: {join_names(cuts)}" if cuts else "")


def _cuts(model: Subgraph, obstacles: list[Operator]) -> list[str]:
    """Returns tensors at which the model could be cut so that no obstacle remains. Obstacles read these tensors, and
    other operators compute them.
    """
    refused = {operator.index for operator in obstacles}
    computed = {index for each in model.operators if each.index not in refused for index in each.outputs}
    read = dict.fromkeys(index for operator in obstacles for index in operator.inputs)
    return [model.tensors[index].label for index in read if index in computed]


def _check_arity(operator: Operator, rule: Rule) -> None:
    least, most = rule.arity
    count = len(operator.inputs)
    if not least <= count <= most:
        raise MalformedModel(f"{operator.label} has {count} inputs", op=operator.label)
    if not 1 <= len(operator.outputs) <= rule.outputs:
        raise MalformedModel(f"{operator.label} has {len(operator.outputs)} outputs", op=operator.label)


def _check_tensor(operator: Operator, tensor: Tensor) -> None:
    rule = RULES[operator.name]
    is_read = (tensor.sparse is not None and rule.sparse) or (tensor.blocks is not None and rule.blocks)
    if tensor.oddity is not None and not is_read:
        _refuse_tensor(operator, tensor, tensor.oddity)


def _refuse_tensor(operator: Operator, tensor: Tensor, what: str) -> NoReturn:
    message = f"{operator.label} uses the tensor {tensor.label}, which {what}"
    raise Unsupported(message, op=operator.label, tensor=tensor.label)


def _tensors(model: Subgraph, operator: Operator) -> Iterator[Tensor]:
    return (model.tensors[index] for index in (*operator.inputs, *operator.outputs) if index >= 0)


def _dtypes(model: Subgraph, indices: tuple[int, ...]) -> Iterator[str]:
    return (model.tensors[index].dtype for index in indices if index >= 0)


def _output(model: Subgraph, operator: Operator) -> str:
    return model.tensors[operator.outputs[0]].label if operator.outputs else "nothing"
