"""Complex values during the import."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import relax


@dataclass(frozen=True)
class Complex:
    """A tensor of complex64, as two float32 tensors of its shape."""

    real: relax.Expr
    imaginary: relax.Expr
