"""Inputs with open dimensions get a shape of one sample."""

from __future__ import annotations

from benchmarks.models.published.shapes import open_shapes


def test_a_picture_has_a_common_size_and_a_text_is_short() -> None:
    inputs: list[dict[str, object]] = [
        {"name": "image", "shape": ["N", 3, "height", "width"]},
        {"name": "ids", "shape": [-1, None]},
        {"name": "rate", "shape": [1]},
        {"name": "frames", "shape": [2, "T", 80]},
    ]
    assert open_shapes(inputs) == "image=1,3,224,224;ids=1,16;frames=2,16,80"


def test_scalars_and_fixed_shapes_are_left_out() -> None:
    assert open_shapes([{"name": "a", "shape": []}, {"name": "b", "shape": [1, 2]}]) == ""


def test_dimensions_of_one_name_have_one_size() -> None:
    inputs: list[dict[str, object]] = [
        {"name": "spectrum", "shape": [1, 2, "S", 96]},
        {"name": "bands", "shape": [1, 1, "S", 32]},
        {"name": "mask", "shape": ["N", "S"]},
    ]
    assert open_shapes(inputs) == "spectrum=1,2,224,96;bands=1,1,224,32;mask=1,224"
