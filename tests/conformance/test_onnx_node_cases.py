"""Cases of ONNX's own test suite (onnx.backend.test) with the suite's expected outputs: for quantized operators, and
for the operators between them in current exports.

`scripts/make_onnx_fixtures.py` stored the cases, so this test needs neither the `onnx` package nor ONNX Runtime. The
suite passes parameters as inputs; here they are constants, as in real models.
"""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from service.compiler.importers.onnx.file.reader import read_model
from service.compiler.importers.onnx.importer import import_model
from service.compiler.importers.onnx.support import is_quantized
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from service.core.errors import OctetError
from service.core.models.arrays import Array
from tests.support import evidence

CASES = np.load(Path(__file__).parents[1] / "fixtures" / "onnx" / "node_cases.npz")
NAMES = sorted(key.removesuffix(".model") for key in CASES if key.endswith(".model"))
# Cases that the importer refuses: a part of the case's name -> the reason.
REFUSED = {
    "float4e2m1": "cannot be sent",
    "fmod_0": "real values",
    "int2": "2 bits",
    "linear_int4": "cannot be sent",
    "linear_uint4": "cannot be sent",
    "tril_zero": "an empty input",
    "triu_zero": "an empty input",
}
# ONNX Runtime, the reference, uses the number of elements of the result. The suite instead uses the number of elements
# multiplied by the scale. ONNX Runtime omits these cases as well.
OTHERWISE = {"test_resize_downsample_scales_cubic_align_corners", "test_resize_downsample_scales_linear_align_corners"}


# Types that NumPy lacks: a part of the case's name -> the type whose bits are stored.
SMALL = {
    "e4m3fn": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
}


def _stored(key: str) -> Array:
    """Returns an input or output of a case. Clients send and receive small real types as float32."""
    values: Array = CASES[key]
    dtype = next((dtype for part, dtype in SMALL.items() if part in key), None)
    return values if dtype is None or values.dtype != np.uint8 else values.view(dtype).astype(np.float32)


def test_the_cases_are_there() -> None:
    assert len(NAMES) > 240


@pytest.mark.parametrize("name", NAMES)
def test_a_case_of_the_suite(name: str) -> None:
    model = CASES[f"{name}.model"].tobytes()
    if any(part in name for part in REFUSED):
        with pytest.raises(OctetError) as caught:
            import_model(model)
        assert caught.value.code in ("unsupported", "unsupported_operator"), caught.value
        return
    imported = import_model(model)
    inputs = [_stored(f"{name}.input{index}") for index in range(len(imported.signature.inputs))]
    actual = oracle.run(imported.module, get_mode(ONNXRUNTIME), inputs)
    expected = [_stored(f"{name}.output{index}") for index in range(len(actual))]
    if name in OTHERWISE:
        with pytest.raises(AssertionError):
            evidence.compare(imported, ONNXRUNTIME, [actual], [expected], steps=1e-5)
        return
    (operator,) = read_model(model).operators
    exact = is_quantized(operator.op_type) or actual[0].dtype.kind != "f"
    # NumPy computes in float32, and Octet computes in float64 with one rounding. The results differ by the rounding
    # errors of a few dozen operations.
    largest = max(1.0, *(float(np.nanmax(np.abs(each), initial=0)) for each in expected))
    evidence.compare(imported, ONNXRUNTIME, [actual], [expected], steps=0 if exact else 1e-5 * largest)
