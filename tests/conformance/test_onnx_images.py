"""GridSample and AffineGrid, compared with ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.onnx_operator import assert_as_onnx_runtime, constant

SHAPES = {  # the image -> the grid
    (2, 3, 5, 7): (2, 4, 6, 2),
    (1, 1, 1, 1): (1, 3, 3, 2),
    (1, 2, 2, 9): (1, 5, 2, 2),
    (2, 2, 3, 4, 5): (2, 2, 3, 2, 3),
}
AFFINE = 1e-6  # of the largest value: ONNX Runtime adds in float32


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize(
    ("mode", "opset"),
    [
        ("linear", 20),
        ("nearest", 20),
        ("cubic", 22),
        ("bilinear", 16),
        pytest.param("bicubic", 16, marks=pytest.mark.slow),
    ],
)
def test_pixels_are_those_of_onnx_runtime(mode: str, opset: int, padding: str, corners: int) -> None:
    rng = np.random.default_rng(0)
    for shape, grid in SHAPES.items():
        if len(shape) == 5 and (opset == 16 or mode == "cubic"):
            continue
        # most positions inside of the image, and most outside; cubic functions take seconds
        for reach in (4.0,) if "cubic" in mode else (0.7, 4.0):
            image = rng.standard_normal(shape).astype(np.float32)
            places = (rng.standard_normal(grid) * reach).astype(np.float32)
            names: dict[str, Any] = {"mode": mode, "padding_mode": padding, "align_corners": corners}
            assert_as_onnx_runtime("GridSample", [image, places], opset=opset, **names)


def test_compiled_samples_equal_the_oracle() -> None:
    rng = np.random.default_rng(1)
    operands = [rng.standard_normal(shape).astype(np.float32) for shape in ((2, 3, 5, 7), (2, 4, 6, 2))]
    assert_as_onnx_runtime("GridSample", operands, compiled=True, mode="linear", padding_mode="reflection")


@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 3, 4, 1), (2, 3, 4, 1, 2)])
def test_an_affine_grid_is_that_of_onnx_runtime(size: tuple[int, ...], corners: int) -> None:
    axes = len(size) - 2
    theta = np.random.default_rng(2).standard_normal((2, axes, axes + 1)).astype(np.float32)
    assert_as_onnx_runtime("AffineGrid", [theta, constant(size)], tolerance=AFFINE, align_corners=corners)
