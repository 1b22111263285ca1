"""ONNX's own test suite for quantized operators (onnx.backend.test), with the answers that it gives.

`scripts/make_onnx_fixtures.py` has written its cases down, so that neither the `onnx` package nor ONNX Runtime is
needed here. Parameters, which the suite sends as inputs, are constants, as in models.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.errors import OctetError
from service.core.numerics import ONNXRUNTIME
from tests.support import evidence

CASES = np.load(Path(__file__).parents[1] / "fixtures" / "onnx" / "node_cases.npz")
NAMES = sorted(key.removesuffix(".model") for key in CASES if key.endswith(".model"))
# What is refused, by a part of its name -> why.
REFUSED = {
    "e4m3fn": "float8",
    "e5m2": "float8",
    "float4e2m1": "float4",
    "float16": "float16",
    "int2": "2 bits",
    "linear_int4": "cannot be sent",
    "linear_uint4": "cannot be sent",
}


def test_the_cases_are_there() -> None:
    assert len(NAMES) > 40


@pytest.mark.parametrize("name", NAMES)
def test_a_case_of_the_suite(name: str) -> None:
    model = CASES[f"{name}.model"].tobytes()
    if any(part in name for part in REFUSED):
        with pytest.raises(OctetError) as caught:
            import_model(model)
        assert caught.value.code in ("unsupported", "unsupported_operator"), caught.value
        return
    imported = import_model(model)
    actual = oracle.run(imported.module, get_mode(ONNXRUNTIME), [CASES[f"{name}.input"]])
    expected = [CASES[f"{name}.output{place}"] for place in range(len(actual))]
    evidence.compare(imported, ONNXRUNTIME, [actual], [expected])
