"""Cards as what draws layers and images wants of an instruction set: how many channels lie side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, cast

from service.compiler.kernels.cuda.images import BLOCK
from service.compiler.kernels.vector.isa import Isa


@dataclass(frozen=True)
class _Blocks:
    name: str
    lanes: ClassVar[int] = BLOCK
    operand_zero_point: ClassVar[int] = 0


def as_isa(capability: str) -> Isa:
    """The card of `capability`, for `tests.support.layers` and `images`, which emulate it."""
    return cast(Isa, cast(Any, _Blocks(capability)))
