"""ARM's instruction sets, which implement `vector.isa.Isa`. Another instruction set needs an entry in `ISAS`, but no
new kernels."""

from __future__ import annotations

from service.compiler.kernels.arm.dots import Dots
from service.compiler.kernels.arm.pairs import MatrixPairs
from service.compiler.kernels.arm.rates import RATES
from service.compiler.kernels.arm.widening import Widening

ISAS: dict[str, Dots | Widening] = {
    isa.name: isa
    for isa in (
        Dots("aarch64+i8mm", RATES["aarch64+i8mm"], mixed=True, pairs=MatrixPairs()),
        Dots("aarch64+dotprod", RATES["aarch64+dotprod"]),
        Widening("aarch64", RATES["aarch64"]),
    )
}
