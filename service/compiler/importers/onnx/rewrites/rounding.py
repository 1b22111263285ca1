"""Products whose operands are rounded to bfloat16: Conv, Gemm and MatMul after Casts to bfloat16.

ONNX files express the rounding by `Cast(x, bfloat16)` and `Cast(…, float)` before both operands. ONNX Runtime's results
then differ only by the rounding of its sums. A stored bfloat16 constant with one Cast counts as a rounded operand too.
If the other operand is not rounded, the constant is converted to float32.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from service.compiler.importers.onnx.model import BFLOAT16_PRODUCTS, Model, Tensor
from service.compiler.importers.qdq import Operator
from service.compiler.qnn.numerics.sums.bfloat16 import BFLOAT16

_FLOAT, _BFLOAT16 = 1, 16  # TensorProto.DataType
_OPERANDS = 2


def round_products(model: Model) -> Model:
    """Returns `model` with products of `BFLOAT16_PRODUCTS` instead, which read the operands before their Casts.

    Requires: a graph that `graph.check_graph` accepts.
    Ensures: a graph that `check_graph` would accept, with the same inputs and outputs. Casts that nothing reads any
        more are removed.
    """
    stored = {
        name: tensor for name, tensor in model.constants.items() if tensor.dtype == BFLOAT16 and tensor.data is not None
    }
    real: dict[str, Tensor] = {}  # output of a Cast -> the constant that it converts
    operators: list[Operator] = []
    for operator in model.operators:
        tensor = stored.get(operator.inputs[0]) if _casts(operator, _FLOAT) else None
        if tensor is None:
            operators.append(operator)
        else:
            (name,) = operator.outputs
            real[name] = replace(tensor, name=name, dtype="float32")
    graph = _Rounded({name: operator for operator in operators for name in operator.outputs}, real)
    products = [graph.product(operator) for operator in operators]
    ends = {end.name for end in model.outputs}
    constants = {**model.constants, **real}
    return replace(model, operators=tuple(_read(products, ends)), constants=constants)


@dataclass(frozen=True)
class _Rounded:
    """Finds the operands that are rounded to bfloat16.

    Attributes:
        makers: computed tensor -> its operator.
        constants: float32 constants with bfloat16 values.
    """

    makers: Mapping[str, Operator]
    constants: Mapping[str, Tensor]

    def product(self, operator: Operator) -> Operator:
        own = BFLOAT16_PRODUCTS.get(operator.op_type)
        operands = [self._unrounded(name) for name in operator.inputs[:_OPERANDS]]
        if own is None or len(operands) < _OPERANDS or not all(operands):
            return operator
        return replace(operator, op_type=own, inputs=(*operands, *operator.inputs[_OPERANDS:]))

    def _unrounded(self, name: str) -> str:
        """Returns the name of the tensor before its rounding to bfloat16, or "" if `name` is not rounded."""
        if name in self.constants:
            return name
        widened = self.makers.get(name)
        narrowed = self.makers.get(widened.inputs[0]) if widened is not None and _casts(widened, _FLOAT) else None
        return narrowed.inputs[0] if narrowed is not None and _casts(narrowed, _BFLOAT16) else ""


def _casts(operator: Operator, to: int) -> bool:
    ends = (len(operator.inputs), len(operator.outputs))
    return operator.op_type == "Cast" and operator.attributes.get("to") == to and ends == (1, 1)


def _read(operators: Sequence[Operator], ends: Collection[str]) -> list[Operator]:
    """Returns `operators` without the Casts to and from bfloat16 that nothing reads."""
    read, kept = set(ends), list[Operator]()
    for operator in reversed(operators):
        rounds = _casts(operator, _BFLOAT16) or _casts(operator, _FLOAT)
        if not rounds or operator.outputs[0] in read:
            kept.append(operator)
            read.update(operator.inputs)
    return kept[::-1]
