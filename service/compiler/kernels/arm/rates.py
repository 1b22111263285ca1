"""The costs of ARM's vector instructions, for the cost models of `simd`.

The costs were not measured. They follow from Arm's software optimization guides for Neoverse N1 (Cortex-A76) and
Cortex-A72: two vector instructions and two loads start in each cycle.
"""

from __future__ import annotations

from service.compiler.kernels.vector.isa import PIXELS
from service.compiler.kernels.vector.rates import DepthwiseRates, EpilogueRates, Rates

_EPILOGUE = EpilogueRates(float_scale=2.0, fixed_point=6.0, exception=1.0, residual=6.0, wide=1.5, int16=16.0)


def _rates(*, dots: float, operand: float) -> Rates:
    """Returns the rates of an instruction set.

    Args:
        dots: the number of instructions of one `Isa.dot`.
        operand: the number of instructions of one `Isa.operand`.
    """
    return Rates(
        dot=0.5 * dots,
        load=0.5,
        together=PIXELS,
        operand=0.5 * operand,
        gather=1.0,
        latency=4.0,
        near_bytes=24 * 1024,
        far_load=2.0,
        overlap=0.1,
        tile=12.0,
        sharing=4_000.0,
        elementwise=8.0,
        resize=40.0,
        epilogue=_EPILOGUE,
        depthwise=DepthwiseRates(
            transpose=1.0 + operand,
            dot=dots,
            requantize=3.5,
            pack=5.0,
            tile=12.0,
            free_accumulators=20,
            crowding=0.015,
        ),
    )


RATES: dict[str, Rates] = {
    "aarch64+i8mm": _rates(dots=1.0, operand=0.0),
    "aarch64+dotprod": _rates(dots=1.0, operand=1.0),
    "aarch64": _rates(dots=4.0, operand=2.0),
}
