"""Quantizing NaN, infinities and values beyond the range."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from service.compiler.qnn import ops, oracle
from service.compiler.qnn.numerics import get_mode
from service.compiler.qnn.types import QuantizedType
from service.core.builds.numerics import LITERT_REFERENCE, XNNPACK
from service.core.target import Target
from tests.support.qnn_models import module_of
from tests.support.selected import RUNNING, run_selected

VALUES = np.array([[np.nan, -np.inf, np.inf, 0.0, 1.5]], np.float32)


@pytest.mark.parametrize("target", RUNNING, ids=str)
@pytest.mark.parametrize(
    ("numerics", "expected"),
    [
        (LITERT_REFERENCE, [0, 0, 0, 20, 23]),  # x86 converts values beyond 32 bits, and NaN, to -2**31.
        (XNNPACK, [255, 0, 255, 20, 23]),  # MINPS returns the largest value for NaN.
    ],
)
def test_values_that_are_not_finite(target: Target, numerics: str, expected: list[int], tmp_path: Path) -> None:
    out_type = QuantizedType("uint8", (0.5,), (20,))
    module = module_of([(VALUES.shape, "float32")], lambda emit, x: emit(ops.quantize(x[0], out_type)))
    (by_oracle,) = oracle.run(module, get_mode(numerics), [VALUES])
    assert by_oracle.tolist() == [expected]
    _, (compiled,) = run_selected(module, target, numerics, [VALUES], tmp_path)
    assert compiled.tolist() == [expected]
