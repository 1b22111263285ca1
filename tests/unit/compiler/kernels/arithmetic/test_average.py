"""Averages that kernels do not compute are declined."""

from __future__ import annotations

from dataclasses import replace

import pytest

from service.compiler.kernels.arithmetic.average import average_of, mean_of
from service.compiler.kernels.kernel import Declined
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.numerics.functions.softmax import TableSoftmax
from service.core.builds.numerics import XNNPACK
from tests.support.pools import pooled
from tests.support.qnn_models import i8

TYPE = i8(0.1, 3)


@pytest.mark.parametrize("axes", [(1,), (2, 3), (1, 2, 3)])
def test_a_mean_over_other_axes_is_declined(axes: tuple[int, ...]) -> None:
    operation = pooled("mean", (1, 4, 4, 3), TYPE, TYPE, axes=axes, keepdims=True)
    with pytest.raises(Declined, match="over rows and columns"):
        mean_of(get_mode(XNNPACK), operation)


def test_a_window_too_large_for_the_quotient_is_declined() -> None:
    operation = pooled("avg_pool2d", (1, 128, 128, 1), TYPE, TYPE, pool_size=(128, 128), strides=(1, 1))
    with pytest.raises(Declined, match="16384 elements"):
        average_of(get_mode(XNNPACK), operation)


def test_a_formula_without_a_kernel_is_declined() -> None:
    mode = replace(get_mode(XNNPACK), formulas={"mean": TableSoftmax(), "avg_pool2d": TableSoftmax()})
    with pytest.raises(Declined, match="exp from a table"):
        mean_of(mode, pooled("mean", (1, 4, 4, 3), TYPE, TYPE, axes=(1, 2), keepdims=True))
    with pytest.raises(Declined, match="exp from a table"):
        average_of(mode, pooled("avg_pool2d", (1, 4, 4, 3), TYPE, TYPE, pool_size=(2, 2), strides=(1, 1)))
