"""Describes GPUs like instruction sets, for the modules that draw layers and images. They need the size of a channel
block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, cast

from service.compiler.kernels.cuda.types.images import BLOCK
from service.compiler.kernels.vector.isa import Isa


@dataclass(frozen=True)
class _Blocks:
    name: str
    lanes: ClassVar[int] = BLOCK
    operand_zero_point: ClassVar[int] = 0


def as_isa(capability: str) -> Isa:
    """Returns a GPU of `capability` for `tests.support.layers` and `images`, which emulate it."""
    return cast(Isa, cast(Any, _Blocks(capability)))
