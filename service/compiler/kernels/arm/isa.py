"""ARM's instruction sets, as `vector.isa.Isa`: a new one is a new entry of `ISAS` and not a new kernel."""

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
