"""Converts single operators of real values by the rules of ONNX's operators, for importers of other formats.

Between its quantized layers, a model of any framework contains the same float operators: convolutions, normalizations,
resizing, reductions. Each format names them and their attributes differently, but they compute the same, so their
conversion is written once, in `operators`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from service.compiler.importers.onnx.converting import converted
from service.compiler.importers.onnx.model import Model, Tensor
from service.compiler.importers.onnx.node import State, Value
from service.compiler.importers.qdq import Operator
from service.compiler.qnn.types import QuantizedType

_OPSET = 20  # the operator set whose definitions are used


@dataclass(frozen=True, eq=False)
class _Named(Operator):
    """An operator that error messages call by its name in the file."""

    name: str = ""

    @property
    def label(self) -> str:
        return self.name


class Standard:
    """Converts operators of ONNX's operator set 20, one by one.

    Attributes:
        state: the state of the conversion. Every operand and every result gets a number as its name.
    """

    def __init__(self, builder: relax.BlockBuilder, size_bytes: int) -> None:
        """`size_bytes` is the size of the file. Constants that are computed may be a few times as large."""
        self.state = State(Model(_OPSET, (), {}, (), (), size_bytes), builder, {})
        self._count = 0

    def convert(
        self,
        label: str,
        op_type: str,
        operands: Sequence[Value | None],
        attributes: Mapping[str, Any],
        results: int = 1,
        stem: str = "",
        stored: QuantizedType | None = None,
    ) -> list[Value]:
        """Emits an operator.

        Args:
            label: the operator as error messages name it.
            op_type: the type in ONNX, such as `Conv`.
            operands: expressions, or arrays that are known while importing; None for an input that is left out.
            attributes: the operator's attributes in ONNX. Sequences are tuples.
            results: the number of outputs.
            stem: the name of the first output, as errors and later passes show it.
            stored: the type of the first operand, if it consists of stored values that the operator only moves.

        Returns:
            The outputs: expressions, or arrays if they are known while importing.

        Raises:
            MalformedModel: the operator's definition is invalid.
            Unsupported: the operator cannot be compiled.
        """
        inputs = ["" if each is None else self._named(each) for each in operands]
        outputs = [self._new_name(stem) for _ in range(results)]
        if stored is not None:
            self.state.types[inputs[0]] = stored
        operator = _Named(self._count, op_type, tuple(inputs), tuple(outputs), attributes, name=label)
        made = converted(self.state, operator)
        self.state.values |= made
        return [made[name] for name in outputs]

    def _named(self, value: Value) -> str:
        name = self._new_name("")
        self.state.values[name] = value
        if isinstance(value, np.ndarray):
            constants: dict[str, Tensor] = self.state.model.constants  # type: ignore[assignment]
            constants[name] = Tensor(name, value.dtype.name, value.shape, value)
        return name

    def _new_name(self, stem: str) -> str:
        self._count += 1
        return f"{stem}.{self._count}"
