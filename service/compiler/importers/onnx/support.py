"""Checks whether a model can be compiled. Checks the whole file, so that the error lists every obstacle."""

from __future__ import annotations

from collections.abc import Collection

from service.compiler.importers.builder.module import unsupported_operators
from service.compiler.importers.names import shortened
from service.compiler.importers.onnx.model import Model
from service.compiler.importers.onnx.operators import RULES
from service.compiler.importers.qdq import Operator
from service.core.errors import MalformedModel, Unsupported

# Operator type -> the remedy for an operator that cannot be compiled, if there is a remedy other than leaving the
# operator out.
_REMEDIES = {
    "com.microsoft.QMoE": "choose a model without a mixture of experts",
}
_WEIGHT_ONLY = ("GatherBlockQuantized", "MatMulNBits")


def check_support(model: Model) -> None:
    """Checks that every operator can be converted.

    Requires: quantized operators have been created (`qdq.fuse`).

    Raises:
        UnsupportedOperator: some operators cannot be converted. The message lists at most `names.MOST_NAMES` of their
            types, and names the first operator.
        Unsupported: an operator uses a constant that no operator can use.
        MalformedModel: an operator has a number of inputs that its definition forbids.
    """
    obstacles = [operator for operator in model.operators if operator.op_type not in RULES]
    if obstacles:
        _refuse(model, obstacles)
    for operator in model.operators:
        check_operator(model, operator)


def check_operator(model: Model, operator: Operator) -> None:
    """Checks that an operator can be converted, as `check_support` does.

    Raises:
        UnsupportedOperator, Unsupported, MalformedModel: as for `check_support`.
    """
    if operator.op_type not in RULES:
        _refuse(model, [operator])
    least, most = RULES[operator.op_type].arity
    if not least <= len(operator.inputs) <= most:
        raise MalformedModel(
            f"{operator.label} has {len(operator.inputs)} inputs, not {least} to {most}", op=operator.label
        )
    for name in operator.inputs:
        tensor = model.constants.get(name)
        if tensor is not None and tensor.oddity:
            raise Unsupported(
                f"{operator.label} uses the constant {shortened(name)}, which {tensor.oddity}",
                op=operator.label,
                tensor=shortened(name),
            )


def _refuse(model: Model, obstacles: list[Operator]) -> None:
    types = dict.fromkeys(operator.op_type for operator in obstacles)
    each = [(operator.op_type, f"{operator.label} → {_output(operator)}") for operator in obstacles]
    first = obstacles[0]
    raise unsupported_operators(each, len(model.operators), first.label, _output(first), _hint(types))


def is_quantized(op_type: str) -> bool:
    """Returns true if operators of this type read or write quantized integers."""
    domain, _, name = op_type.rpartition(".")
    if domain not in ("", "com.microsoft"):  # the operators of a dialect
        return False
    return name.startswith(("Q", "Dequantize", "DynamicQuantize")) or "Integer" in name or name in _WEIGHT_ONLY


def _hint(types: Collection[str]) -> str | None:
    remedies = [_REMEDIES[each] for each in types if each in _REMEDIES]
    if remedies and len(remedies) == len(types):
        return "; ".join(dict.fromkeys(remedies))
    return None


def _output(operator: Operator) -> str:
    return shortened(next((name for name in operator.outputs if name), "nothing"))
