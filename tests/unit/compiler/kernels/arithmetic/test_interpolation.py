"""Formulas of interpolation that kernels decline."""

from __future__ import annotations

import pytest

from service.compiler.kernels.arithmetic.interpolation import blend_of
from service.compiler.kernels.kernel import Declined
from service.compiler.qnn import ops
from service.compiler.qnn.numerics import Mode
from service.compiler.qnn.numerics.functions.softmax import TableSoftmax
from service.compiler.qnn.types import QuantizedType
from tests.support.convolutions import group_of
from tests.support.qnn_models import i8, module_of


def test_another_formula_is_declined() -> None:
    kind: QuantizedType = i8(0.1)
    how = {"size": (2, 2), "align_corners": False, "half_pixel_centers": False}
    module = module_of(
        [((1, 3, 3, 4), "int8")],
        lambda emit, inputs: emit(ops.resize_bilinear(inputs[0], kind, kind, **how)),  # type: ignore[arg-type]
    )
    mode = Mode("odd", "odd", {"resize_bilinear": TableSoftmax()})
    with pytest.raises(Declined, match="no kernel computes"):
        blend_of(mode, group_of(module).core)
