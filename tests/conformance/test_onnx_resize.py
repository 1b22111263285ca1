"""Resize that interpolates between four elements of an image. It equals ONNX Runtime's bit for bit, because its float32
sums have a fixed order.
"""

from __future__ import annotations

import numpy as np
import pytest

from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.canonicalize import canonicalize
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from tests.support import evidence
from tests.support.onnx_builder import OnnxBuilder
from tests.support.onnx_reference import Reference
from tests.support.qnn_models import compile_and_run_all

MODE = get_mode(ONNXRUNTIME)
SIZES = [(3, 3, 4, 4), (5, 7, 10, 7), (9, 9, 4, 5), (1, 8, 16, 16), (6, 1, 6, 3)]


@pytest.mark.parametrize("corners", ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
@pytest.mark.parametrize("size", SIZES)
def test_linear_resize_equals_onnxruntime(corners: str, size: tuple[int, int, int, int]) -> None:
    height, width, *after = size
    model = OnnxBuilder()
    x = model.input("x", "float32", (1, 3, height, width))
    sizes = model.constant([1, 3, *after], "int64")
    model.output(
        model.node("Resize", [x, "", "", sizes], mode="linear", coordinate_transformation_mode=corners), "float32"
    )
    data = model.build()
    sample = [np.random.default_rng(3).normal(0, 1, (1, 3, height, width)).astype(np.float32)]
    imported = import_model(data)
    module = imported.module
    (expected,), (actual,) = Reference(data, optimized=True)(sample), oracle.run(module, MODE, sample)
    evidence.compare(imported, ONNXRUNTIME, [[actual]], [[expected]])
    (compiled,) = compile_and_run_all(canonicalize(module, MODE), sample)
    np.testing.assert_array_equal(compiled, actual)
