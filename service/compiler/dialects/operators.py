"""An operator that a dialect defines, as Python code calls it."""

from __future__ import annotations

from typing import Any

from tvm import relax
from tvm.relax import dpl

from service.compiler.qnn.ops import defined
from service.compiler.qnn.ops.call import PREFIX
from service.compiler.qnn.ops.defined import Definition, Parameter
from service.compiler.qnn.types import QuantizedType
from service.core.errors import InvalidInput


class Operator:
    """An operator that a dialect defines. Calling it returns a call, which `Graph.emit` adds to a graph.

    An operator of real values takes float32 tensors, which broadcast. An operator of integers takes stored values, and
    the types as `in_type` (or `lhs_type` and `rhs_type`) and `out_type`.
    """

    def __init__(self, definition: Definition) -> None:
        self.definition = definition

    @property
    def name(self) -> str:
        """The name with the dialect, for example `mine.softsign`."""
        return self.definition.name

    def __call__(self, *operands: relax.Expr, **given: Any) -> relax.Call:
        types = {name: given.pop(name) for name in (*self.definition.type_names, "out_type") if name in given}
        if not self.definition.takes_integers:
            if types:
                raise InvalidInput(
                    f"{self.name} takes real values: use {self.name.partition('.')[2]}.stored", op=self.name
                )
            return defined.real_form(self.definition, *operands, **given)
        missing = {*self.definition.type_names, "out_type"} - set(types)
        if missing:
            raise InvalidInput(f"{self.name} needs the type {sorted(missing)[0]}", op=self.name)
        return defined.integer_form(self.definition, *operands, types=types, **given)

    def stored(
        self, x: relax.Expr, in_type: QuantizedType, out_type: QuantizedType, **parameters: Parameter
    ) -> relax.Call:
        """Returns quantize(formula(dequantize(x))) of stored values, same shape. After a convolution or a dense layer,
        the layer's kernel computes it.

        Args:
            in_type: 8 or 16 bits per tensor; or int32 (accumulators), per tensor or with a scale for each channel of
                the last axis.
            out_type: 8 or 16 bits, per tensor.
        """
        if self.definition.takes_integers or self.definition.operands != 1:
            raise InvalidInput(f"{self.name} is not a function of one real value", op=self.name)
        return defined.stored_form(self.definition, x, in_type, out_type, **parameters)

    def pattern(self, *operands: dpl.DFPattern) -> dpl.DFPattern:
        """Returns a pattern that matches calls of this operator."""
        return dpl.is_op(PREFIX + self.name)(*operands)

    def __repr__(self) -> str:
        return f"<operator {self.name}: {self.definition.summary}>"
