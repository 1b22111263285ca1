"""The costs of x86-64's vector instructions, for the cost models of `simd`.

The costs are fitted to measured times of thirteen convolutions and matrix products on Zen 4, for each of four
instruction sets. Of the 52 tiles that the cost model chooses, 49 are within 5 % of the best tile's time, and the other
three (two of them with very short sums) within 8 %. In a depthwise convolution with byte products, each accumulator
beyond 24 costs 1.5 %. Without byte products, the cost of spilled accumulators was too small to measure.
"""

from __future__ import annotations

from service.compiler.kernels.vector.rates import DepthwiseRates, EpilogueRates, MatrixRates, Rates

_EPILOGUE = EpilogueRates(float_scale=2.0, fixed_point=6.0, exception=1.0, residual=6.0, wide=1.5, int16=16.0)


def _rates(width: float, *, dots_bytes: bool) -> Rates:
    """Returns the rates for 512-bit vectors (`width` 1) or 256-bit vectors, relative to a 512-bit instruction."""
    return Rates(
        dot=width if dots_bytes else 2.5 * width,
        load=width,
        together=1,
        operand=0.0 if dots_bytes else width,
        gather=1.3 * width,
        latency=4.0,
        near_bytes=24 * 1024,
        far_load=2.0,
        overlap=0.08,
        tile=12.0,
        sharing=1_000.0,
        elementwise=8.0,
        resize=40.0,
        epilogue=_EPILOGUE,
        depthwise=DepthwiseRates(
            transpose=2.0 if dots_bytes else 4.0,
            dot=1.0 if dots_bytes else 4.0,
            requantize=3.5,
            pack=5.0,
            tile=12.0,
            free_accumulators=24,
            crowding=0.015 if dots_bytes else 0.0,
        ),
    )


RATES: dict[str, Rates] = {
    "x86-64-v4+amx": _rates(1.0, dots_bytes=True),
    "x86-64-v4+vnni": _rates(1.0, dots_bytes=True),
    "x86-64-v4+vnni+bf16": _rates(1.0, dots_bytes=True),
    "x86-64-v4": _rates(1.0, dots_bytes=False),
    "x86-64-v3+avxvnni": _rates(0.5, dots_bytes=True),
    "x86-64-v3": _rates(0.5, dots_bytes=False),
}

# Measured on Emerald Rapids.
AMX_RATES = MatrixRates(
    row=1.0,
    latency=36.0,
    near_row=0.5,
    far_row=1.5,
    memory_row=7.0,
    near_bytes=32 * 1024,
    far_bytes=3 * 512 * 1024,
    overlap=0.3,
    vector=0.6,
    pack=7.0,
    epilogue=3.0,
    group=60.0,
    item=800.0,
)
