"""Calibration sets are read one by one, and what is wrong with them is said."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from service.core.errors import InvalidInput, InvalidTensor, OctetError
from service.core.metadata import ModelMetadata
from service.core.signature import ModelSignature, TensorSpec
from service.quantize.data import Data, accuracy, labels_of

OUTPUT = TensorSpec("y", "FP32", (1, 2))
IMAGE = ModelSignature((TensorSpec("image", "FP32", (1, 3, 4, 4)),), (OUTPUT,))
PAIR = ModelSignature((TensorSpec("a", "FP32", (1, 2)), TensorSpec("b", "INT64", (1, 3))), (OUTPUT,))


def written(path: Path, **arrays: Any) -> Data:
    np.savez(path, **arrays)
    return Data(path)


def refused(data: Data, signature: ModelSignature = IMAGE) -> OctetError:
    with pytest.raises((InvalidInput, InvalidTensor)) as caught:
        list(data.inputs(signature))
    return caught.value


def test_arrays_by_name(tmp_path: Path) -> None:
    a, b = np.arange(6, dtype=np.float64).reshape(3, 2), np.arange(9, dtype=np.int32).reshape(3, 3)
    inputs = list(written(tmp_path / "x.npz", b=b, a=a).inputs(PAIR))
    assert [[tensor.dtype.name for tensor in tensors] for tensors in inputs] == [["float32", "int64"]] * 3
    np.testing.assert_array_equal(inputs[2][0], a[2:])
    np.testing.assert_array_equal(inputs[1][1], b[1:2])


def test_a_single_array_needs_no_name(tmp_path: Path) -> None:
    values = np.ones((5, 3, 4, 4), np.float16)
    assert len(list(written(tmp_path / "x.npz", values=values).inputs(IMAGE))) == 5
    np.save(tmp_path / "x.npy", values)
    data = Data(tmp_path / "x.npy", most=2)
    assert [tensors[0].dtype.name for tensors in data.inputs(IMAGE)] == ["float32"] * 2


def test_pictures(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for name, level in (("b.png", 255), ("deep/a.png", 0)):
        Image.new("RGB", (9, 7), (level,) * 3).save(tmp_path / name)
    (tmp_path / "notes.txt").write_text("no picture")
    data = Data(tmp_path, ModelMetadata(mean=(0.5,), std=(0.5,)))
    assert [tensors[0].max() for tensors in data.inputs(IMAGE)] == [1, -1]
    labels = tmp_path / "labels.csv"
    labels.write_text("file,class\ndeep/a.png,7\n")
    assert labels_of(labels, data) == [None, 7]
    labels.write_text("c.png,7\n")
    with pytest.raises(InvalidInput, match=r"'c\.png' is no picture"):
        labels_of(labels, data)


def test_values_that_are_no_numbers(tmp_path: Path) -> None:
    values = np.zeros((4, 3, 4, 4), np.float32)
    values[2, 1, 0, 3] = np.nan
    error = refused(written(tmp_path / "x.npz", image=values))
    assert error.message.endswith("input 2 of the calibration set has NaN or infinity in 'image'")
    too_large = np.full((1, 3, 4, 4), 1e300)
    assert "NaN or infinity" in refused(written(tmp_path / "y.npz", image=too_large)).message


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (np.zeros((2, 3, 4, 5), np.float32), "the model takes [1, 3, 4, 4]"),
        (np.zeros((3, 4, 4), np.float32), "the model takes [1, 3, 4, 4]"),
        (np.zeros((2, 3, 4, 4), np.uint8), "is of uint8; the model takes float32"),
        (np.asfortranarray(np.zeros((2, 3, 4, 4), np.float32)), "by columns"),
        (np.array(["a", "b"]), "is of <U1"),
        (np.array(3, np.float32), "the model takes [1, 3, 4, 4]"),
        (np.zeros((0, 3, 4, 4), np.float32), "has no inputs"),
    ],
)
def test_arrays_that_do_not_fit(tmp_path: Path, values: np.ndarray[Any, Any], said: str) -> None:
    assert said in refused(written(tmp_path / "x.npz", image=values)).message


def test_python_objects_are_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, image=np.array([print, len], dtype=object), allow_pickle=True)
    refused(Data(path))


def header(shape: tuple[int, ...]) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return file.getvalue()


def test_an_array_that_says_it_is_huge_takes_no_memory(tmp_path: Path) -> None:
    """Its file is 200 bytes, and a few megabytes of zeros deflated."""
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("image.npy", header((1 << 40, 3, 4, 4)) + bytes(48 * 4 * 10_000))
    assert path.stat().st_size < 10_000
    data = Data(path, most=20_000)
    assert refused(data).message.endswith(f"ends within input 10000 of {1 << 40}")
    assert len(list(Data(path, most=100).inputs(IMAGE))) == 100


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x93NUMPY\x01\x00\xff\xff{", b"\x93NUMPY\x09\x00", b"no"])
def test_damaged_files(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.npz"
    path.write_bytes(content)
    refused(Data(path))


def test_missing_arrays_and_lengths_that_differ(tmp_path: Path) -> None:
    a = np.zeros((2, 2), np.float32)
    assert "has no array 'b'; it has: a, c" in refused(written(tmp_path / "x.npz", a=a, c=a), PAIR).message
    uneven = written(tmp_path / "y.npz", a=a, b=np.zeros((3, 3), np.int64))
    assert "different lengths: [2, 3]" in refused(uneven, PAIR).message
    np.save(tmp_path / "x.npy", a)
    assert "has one array" in refused(Data(tmp_path / "x.npy"), PAIR).message
    assert "takes no folder" in refused(Data(tmp_path), PAIR).message
    (tmp_path / "empty").mkdir()
    assert "has no inputs" in refused(Data(tmp_path / "empty")).message


def test_labels_of_arrays(tmp_path: Path) -> None:
    path, data = tmp_path / "labels.csv", Data(tmp_path / "x.npz", most=2)
    path.write_text("class\n4\n5\n6\n")
    assert labels_of(path, data) == [4, 5]
    path.write_text("4\nfive\n")
    with pytest.raises(InvalidInput, match="label 2 is 'five'"):
        labels_of(path, data)


def test_accuracy_counts_what_is_labelled() -> None:
    counted = accuracy([1, 2, 3, 4, 5], [1, 2, None, 0, 5])
    assert (counted["right"], counted["inputs"], counted["share"]) == (3, 4, 0.75)
    assert counted["standard_error"] == pytest.approx((0.75 * 0.25 / 4) ** 0.5)
