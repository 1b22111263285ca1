"""An operator during its conversion: values get names that identify the operator, and errors name it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import numpy as np
from tvm import relax

from service.compiler.importers.names import shortened
from service.compiler.qnn.graph import emit, shape_of
from service.compiler.qnn.operation import IllTyped
from service.core.errors import MalformedModel, OctetError, Unsupported
from service.core.models.arrays import Array

_NAME_LENGTH = 120  # length of a name hint: enough to recognise a tensor, and bounded
_MOST_ELEMENTS = (1 << 31) - 1  # kernels index with 32-bit integers


class Node:
    """An operator during its conversion. Each importer derives a class that gives access to operands and attributes.

    Attributes:
        label: the operator as error messages name it: `Conv #17`.
        remedy: the hint of errors that have no other.
        index_dtype: the dtype of constant indices.
        folds_empty: true if the importer computes operators on tensors without elements itself.
    """

    remedy: str | None = None
    index_dtype = "int64"
    folds_empty = False

    def __init__(
        self, builder: relax.BlockBuilder, label: str, output: str, prefix: str = "", suffix: str = ""
    ) -> None:
        """
        Args:
            output: the name of the operator's output, which errors without another tensor name.
            prefix, suffix: parts of the names of emitted values, from which later errors can tell operator and tensor.
        """
        self.label = label
        self._builder, self._output, self._prefix, self._suffix = builder, output, prefix, suffix

    # -- results

    def emit(self, expr: relax.Expr, part: str = "") -> relax.Expr:
        """Binds a value and returns its variable. `part` becomes a part of the variable's name."""
        return self._bind(expr, part, self._suffix)

    def _bind(self, expr: relax.Expr, part: str, suffix: str) -> relax.Expr:
        name = "_".join(filter(None, (self._prefix, part, suffix)))
        try:
            value = self._folded(expr) or emit(self._builder, expr, name[:_NAME_LENGTH])
        except IllTyped as exc:
            raise self._ill_typed(exc) from exc
        if math.prod(shape_of(value)) > _MOST_ELEMENTS:
            self.unsupported(f"computes a tensor of shape {list(shape_of(value))}, which is too large")
        return value

    def _folded(self, expr: relax.Expr) -> relax.Expr | None:
        """Returns the value of `expr` if the importer computes it at once, or None."""
        return None

    def move(self, x: Any, make: Callable[[relax.Expr], relax.Call], part: str = "") -> Any:
        """Binds `make(x)`, a call that only moves elements of `x`. An importer may accept values other than
        expressions, and compute the result.
        """
        return self.emit(make(x), part)

    def reserve(self, size_bytes: int) -> None:
        """Requires that a constant of this size may be added to the module. The base class allows any size."""

    def literal(self, array: Array) -> relax.Constant:
        """Returns a new constant for this operator, with the array's own dtype."""
        self.reserve(array.nbytes)
        return relax.const(np.ascontiguousarray(array).reshape(array.shape), array.dtype.name)

    # -- axes and shapes

    def extents(self, x: Any) -> tuple[int, ...]:
        """Returns the shape of a value that `move` accepts."""
        return shape_of(x)

    def axis(self, named: int, rank: int) -> int:
        """Returns an axis of `rank` dimensions, counted from the front; a negative number counts from the end."""
        # a list of axes in a file may contain values of any type
        fits = isinstance(named, int | np.integer) and -rank <= named < rank
        self.require(fits, f"has axis {str(named)[:40]}, but its input has {rank} dimensions")
        return int(named % rank)

    def axes(self, named: Iterable[int], rank: int) -> list[int]:
        return [self.axis(each, rank) for each in named]

    # -- errors

    def require(self, condition: bool, what: str, tensor: object = None) -> None:
        """Raises the error of `malformed` unless `condition` holds. Use it only for conditions that every runtime
        requires of a file.
        """
        if not condition:
            self.malformed(what, tensor)

    def require_supported(self, condition: bool, what: str, tensor: object = None, hint: str | None = None) -> None:
        """Raises `Unsupported` unless `condition` holds. Use it for conditions that runtimes do not require."""
        if not condition:
            self.unsupported(what, tensor, hint)

    def malformed(self, what: str, tensor: object = None) -> NoReturn:
        raise MalformedModel(f"{self.label} {what}", op=self.label, tensor=self._tensor_label(tensor))

    def unsupported(self, what: str, tensor: object = None, hint: str | None = None) -> NoReturn:
        raise Unsupported(
            f"{self.label} {what}", op=self.label, tensor=self._tensor_label(tensor), hint=hint or self.remedy
        )

    def _tensor_label(self, tensor: object = None) -> str:
        return shortened(self._output if tensor is None else str(tensor))

    def _ill_typed(self, error: IllTyped) -> OctetError:
        """Returns the error for an expression that has no type."""
        return MalformedModel(f"{self.label}: {error.message}", op=self.label, tensor=self._tensor_label())
