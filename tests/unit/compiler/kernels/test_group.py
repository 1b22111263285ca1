"""Tests of how a group of operators depends on the length of the input."""

from __future__ import annotations

from tvm import relax

from service.compiler.kernels.group import Length

VAR = relax.Var("length", relax.TensorType([1], "int32"))


def test_a_tile_is_chosen_for_the_longest_input_and_its_halves() -> None:
    assert Length(VAR, rows=True).shares(64, 384, 1536) == [(64, 384, 1536), (32, 384, 1536), (16, 384, 1536)]
    assert Length(VAR, rows=True, columns=True).shares(40, 40, 32) == [(40, 40, 32), (20, 20, 32)]
    assert Length(VAR, rows=True, depth=True).shares(15, 32, 15) == [(15, 32, 15)]
