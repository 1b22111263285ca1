"""Random models of Resize."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.conformance.onnx_random.draws import Draw, Drawn, strip
from tests.support.onnx_operator import Constant, Operand

_COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric")
_CROPPED = "tf_crop_and_resize"


def resize(of: Draw) -> Drawn:
    rank = of.one([2, 3, 4, 4, 4, 5])
    shape, first = of.sizes(rank, 2, 7), 0 if rank == 2 else 2
    resized = list(range(first, rank))
    mode = of.one(["nearest", "linear", "cubic"])
    coordinates = of.one(_COORDINATES if mode == "cubic" else (*_COORDINATES, _CROPPED))
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": coordinates}
    if mode == "nearest":
        attributes["nearest_mode"] = of.one(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
    if has_axes := of.often():
        attributes["axes"] = resized
    kept = [] if has_axes else shape[:first]
    region: Operand = None
    if coordinates == _CROPPED:
        starts, ends = ([float(of.rng.uniform(low, low + 0.7)) for _ in resized] for low in (-0.2, 0.6))
        region = Constant(np.array([0.0] * len(kept) + starts + [1.0] * len(kept) + ends, np.float32))
        attributes["extrapolation_value"] = 7.5
    scales: Operand = None
    sizes: Operand = None
    if coordinates == _CROPPED or of.often():
        sizes = Constant(np.array([*kept, *(of.size(1, 9) for _ in resized)], np.int64))
        if has_axes and coordinates != _CROPPED and of.often():
            attributes["keep_aspect_ratio_policy"] = of.one(["not_larger", "not_smaller"])
    else:
        scales = Constant(
            np.array([1.0] * len(kept) + [of.one([0.5, 0.6, 1.0, 1.5, 2.5]) for _ in resized], np.float32)
        )
    if mode != "nearest" and coordinates != _CROPPED and of.often(0.2):
        attributes["antialias"] = 1
    if mode == "cubic" and of.often(0.3):
        attributes["exclude_outside"] = 1
    if mode == "cubic" and of.often(0.3):
        attributes["cubic_coeff_a"] = -0.5
    operands = strip([of.real(*shape), region, scales, sizes])
    return Drawn("Resize", operands, ["float32"], attributes, tolerance=2e-6, opset=19)


IMAGES = {"Resize": resize}
