"""The constants of a model as expressions."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import numpy as np
from tvm import relax

from service.compiler.qnn.types import QuantizedType
from service.core.errors import OctetError
from service.core.models.arrays import Array

Layout = Callable[[Array], Array]

_FLOOR_BYTES = 1 << 20


class Constants:
    """The model's constants as expressions: one for each distinct use.

    The module stores every constant expression separately, even if several are equal. A small file must not become a
    large module, so equal uses share one expression, and all constants together may have only a limited size.
    """

    def __init__(self, most_bytes: int, refusal: Callable[[str], OctetError]) -> None:
        """
        Args:
            most_bytes: the limit, to which a floor is added.
            refusal: returns the error for the tensor whose constant exceeds the limit.
        """
        self._known: dict[Hashable, relax.Constant] = {}
        # constants of real values -> the stored values from which they were computed, and their type
        self.dequantized: dict[relax.Expr, tuple[Array, QuantizedType]] = {}
        self._budget_bytes, self._refusal = most_bytes + _FLOOR_BYTES, refusal

    def expr(self, owner: Hashable, data: Array, label: str, layout: Layout | None = None) -> relax.Constant:
        """Returns `layout(data)` as a constant.

        Args:
            owner: identifies `data`; uses with the same owner and layout share one constant. None for a new constant.
            label: the tensor that an error names.
            layout: a module-level function, because its name is part of the cache key.
        """
        key = (owner, layout.__name__ if layout else "")
        if owner is None or key not in self._known:
            self.charge(data.nbytes, label)
            array = layout(data) if layout else data
            array = np.ascontiguousarray(array).reshape(array.shape)  # without the shape, a scalar would become a row
            self._known[key] = relax.const(array, array.dtype.name)  # without the dtype, int64 would become int32
        return self._known[key]

    def affords(self, size_bytes: int) -> bool:
        """Reserves `size_bytes` of the limit. Returns false if less is left."""
        fits = size_bytes <= self._budget_bytes
        self._budget_bytes -= size_bytes if fits else 0
        return fits

    def charge(self, size_bytes: int, label: str) -> None:
        """Reserves `size_bytes` of the limit.

        Raises:
            OctetError: `refusal`, if less is left.
        """
        if not self.affords(size_bytes):
            raise self._refusal(label)
