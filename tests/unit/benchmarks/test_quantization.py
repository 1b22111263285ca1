"""Tests of measuring the cost of quantization: statistics, generated pictures of known content, and the page."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from benchmarks.quantization import faces, text
from benchmarks.quantization.judging import Counted, each, overlap
from benchmarks.quantization.making import DEFAULT
from benchmarks.quantization.page import page
from benchmarks.quantization.records import Record, Row
from tests.support.shared_data import require_shared_data


def test_the_error_of_a_share_is_binomial_if_inputs_have_equal_weight() -> None:
    counted = each([True] * 30 + [False] * 10)
    assert counted.share == 0.75
    assert counted.error == pytest.approx((0.75 * 0.25 / 40) ** 0.5)


def test_the_error_of_a_difference_depends_only_on_inputs_that_differ() -> None:
    first, second = each([True, True, True, False] * 10), each([True, True, False, False] * 10)
    more, error = first.more(second)
    assert more == pytest.approx(0.25)
    assert error == pytest.approx((0.25 * 0.75 / 40) ** 0.5)
    assert first.more(first) == (0, 0)


def test_the_weight_of_a_line_is_its_number_of_characters() -> None:
    assert Counted(np.array([10, 0]), np.array([10, 30])).share == 0.25


def test_two_empty_masks_overlap_entirely() -> None:
    masks = np.packbits([[0] * 8, [1] * 8, [1, 1, 0, 0, 0, 0, 0, 0]], axis=1)
    others = np.packbits([[0] * 8, [0] * 8, [1, 0, 1, 0, 0, 0, 0, 0]], axis=1)
    assert overlap(masks, others).right.tolist() == [1, 0, 1 / 3]


def test_points_are_rotated_like_pictures() -> None:
    dot = Image.new("L", (320, 48))
    dot.paste(255, (30, 10, 33, 13))
    turned = np.asarray(dot.rotate(7, Image.Resampling.BILINEAR), float)
    y, x = (float((turned * axis).sum() / turned.sum()) for axis in np.indices(turned.shape))
    rotated = text._rotate_points(np.array([[31.5, 11.5]]), 7, (48, 320))
    np.testing.assert_allclose(rotated[0], (x + 0.5, y + 0.5), atol=0.1)


def test_the_text_of_a_page_is_inside_its_boxes() -> None:
    images, lines = text.pages(2, 4)
    for image, boxes in zip(images, lines, strict=True):
        gray = image.mean(axis=0)
        positions = boxes.round().astype(int).clip(0)
        inside = [gray[top:bottom, left:right].std() for left, top, right, bottom in positions]
        above = [gray[max(top - 4, 0) : top - 1, left:right].std() for left, top, right, _ in positions]
        assert min(inside) > 2 * max(above)


def test_each_connected_part_is_a_box() -> None:
    mask = np.zeros((40, 60), bool)
    mask[5:11, 10:40], mask[20:26, 10:25], mask[20:26, 30:45], mask[35, 5] = True, True, True, True
    found = text.boxes(mask)
    # the single pixel is not found
    assert sorted(found[:, 0].tolist()) == [10 - 3.75, 10 - 90 * 1.5 / 42, 30 - 90 * 1.5 / 42]
    near = np.array([[7.0, 2.0, 44.0, 15.0], [8.0, 17.0, 60.0, 29.0]])  # the second box is found in two parts
    assert text.matched(found, near) == 1
    assert text.matched(near[[0, 0]], near) == 1, "each box counts only once"


def test_the_box_of_a_face_contains_the_face(monkeypatch: pytest.MonkeyPatch) -> None:
    """The portrait is black except for the face, which is white."""
    require_shared_data()
    portrait = Image.new("RGB", (512, 600))
    portrait.paste((255, 255, 255), faces._FACE)
    monkeypatch.setattr(faces, "_portrait", lambda: portrait)
    monkeypatch.setattr(faces, "_lit", lambda picture, rng: picture)
    for scene, box in zip(*faces.scenes(4, 128, 6), strict=True):
        left, top, right, bottom = (box * 128).round().astype(int)
        assert scene[top + 1 : bottom - 1, left + 1 : right - 1].min() > 0.9


def test_anchors_equal_those_of_the_detector() -> None:
    positions = faces.anchors(faces.OF_FACES)
    assert positions.shape == (896, 2)
    assert positions[:3].tolist() == [[1 / 32, 1 / 32], [1 / 32, 1 / 32], [3 / 32, 1 / 32]]


def _record(**rows: Counted) -> Record:
    named = {"float": "float", "ours": DEFAULT, "theirs": "ONNX Runtime, MinMax"}
    made = [Row(named[key], f"{key}.onnx", 1, 10, "", value, value, 20.0) for key, value in rows.items()]
    failed = [
        Row(name, "", failed="fails: no operator")
        for name in ("NNCF, performance", "torchao, PT2E", "AI Edge Quantizer")
    ]
    return Record("Digits", "Small.", (*made, *failed), "right", "same class as float", said="Equal.")


def test_the_page_compares_octets_default_with_the_best_other_default() -> None:
    record = _record(float=each([1, 1, 1, 1]), ours=each([1, 1, 1, 0]), theirs=each([1, 1, 0, 0]))
    written = page([record, Record("Voice", "A network.", refused="LSTM is not compiled")], ["## Another\n\ntext"])
    (row,) = (line for line in written.splitlines() if line.startswith("| Digits"))
    assert [cell.strip() for cell in row.split("|")][6:9] == ["ONNX Runtime, MinMax", "50.0 ± 25.0 %", "+25.0 ± 21.7"]
    assert "| NNCF, performance | fails: no operator |" in written
    assert "| Voice | A network. | LSTM is not compiled |" in written
    assert written.index("## Another") < written.index("## Digits")


def test_sections_without_a_replacement_stay() -> None:
    before = "# Costs\n\nHow.\n\n## Digits\n\nold digits\n\n## Another network\n\nold\n"
    record = _record(float=each([1, 0]), ours=each([1, 1]), theirs=each([0, 0]))
    written = page([record], [], before)
    assert "old digits" not in written
    assert written.endswith("\n\n## Another network\n\nold\n")
    assert page([record], [], written) == written


def test_rows_of_networks_without_results_stay() -> None:
    record = _record(float=each([1, 0]), ours=each([1, 1]), theirs=each([0, 0]))
    first = page([record], [])
    other = replace(record, title="Another network")
    both = page([other], [], first)
    summary = both.partition("## Defaults side by side")[2].partition("\n## ")[0]
    rows = [line.split(" | ")[0] for line in summary.splitlines() if line.startswith("| ")][2:]
    assert rows == ["| Another network", f"| {record.title}"]


def test_records_survive_a_round_trip() -> None:
    record = _record(float=each([1, 0]), ours=each([1, 1]), theirs=each([0, 0]))
    read = Record.from_json(record.to_json())
    assert read.rows[1].name == DEFAULT
    assert read.rows[1].judged is not None
    assert read.rows[1].judged.right.tolist() == [1, 1]
