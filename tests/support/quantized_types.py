"""Hypothesis strategies for the blocks of quantized types."""

from __future__ import annotations

from hypothesis import strategies as st

SCALES = st.floats(2.0**-60, 2.0**60, width=32)


@st.composite
def blocks(draw: st.DrawFn) -> tuple[tuple[tuple[int, int], ...], tuple[int, ...]]:
    """Draws block sizes and the grid of blocks."""
    rank = draw(st.integers(1, 3))
    dimensions = sorted(draw(st.sets(st.integers(0, rank - 1), max_size=rank)))
    grid = tuple(draw(st.integers(1, 3)) if dimension in dimensions else 1 for dimension in range(rank))
    return tuple((dimension, draw(st.integers(1, 64))) for dimension in dimensions), grid
