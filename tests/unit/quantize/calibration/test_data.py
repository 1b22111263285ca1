"""Calibration sets are read one input at a time, and error messages name the cause."""

from __future__ import annotations

import io
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from service.core.errors import InvalidInput, InvalidTensor, OctetError
from service.core.models.metadata import ModelMetadata
from service.core.models.signature import ModelSignature, TensorSpec
from service.quantize.calibration.data import Data, labels_of, texts_of

OUTPUT = TensorSpec("y", "FP32", (1, 2))
IMAGE = ModelSignature((TensorSpec("image", "FP32", (1, 3, 4, 4)),), (OUTPUT,))
PAIR = ModelSignature((TensorSpec("a", "FP32", (1, 2)), TensorSpec("b", "INT64", (1, 3))), (OUTPUT,))


def save_data(path: Path, **arrays: Any) -> Data:
    np.savez(path, **arrays)
    return Data(path)


def refused(data: Data, signature: ModelSignature = IMAGE) -> OctetError:
    with pytest.raises((InvalidInput, InvalidTensor)) as caught:
        list(data.inputs(signature))
    return caught.value


def test_arrays_by_name(tmp_path: Path) -> None:
    a, b = np.arange(6, dtype=np.float64).reshape(3, 2), np.arange(9, dtype=np.int32).reshape(3, 3)
    inputs = list(save_data(tmp_path / "x.npz", b=b, a=a).inputs(PAIR))
    assert [[tensor.dtype.name for tensor in tensors] for tensors in inputs] == [["float32", "int64"]] * 3
    np.testing.assert_array_equal(inputs[2][0], a[2:])
    np.testing.assert_array_equal(inputs[1][1], b[1:2])


def test_an_input_without_an_axis_of_samples_has_the_count_before_its_own(tmp_path: Path) -> None:
    spec = TensorSpec("image", "FP32", (1, 4)), TensorSpec("state", "FP32", (2, 1, 3)), TensorSpec("rate", "INT64", ())
    rng = np.random.default_rng(0)
    image, state = rng.random((5, 4), np.float32), rng.random((5, 2, 1, 3), np.float32)
    data = save_data(tmp_path / "x.npz", image=image, state=state, rate=np.arange(5))
    inputs = list(data.inputs(ModelSignature(spec, (OUTPUT,))))
    assert [[tensor.shape for tensor in tensors] for tensors in inputs] == [[(1, 4), (2, 1, 3), ()]] * 5
    np.testing.assert_array_equal(inputs[3][1], state[3])
    assert inputs[4][2] == 4
    other = save_data(tmp_path / "y.npz", image=image[:, np.newaxis], state=state[:, 0], rate=np.arange(5))
    message = refused(other, ModelSignature(spec, (OUTPUT,)))
    assert (message.tensor, message.hint) == ("state", "write an array of [count, 2, 1, 3]")


def test_a_single_array_needs_no_name(tmp_path: Path) -> None:
    values = np.ones((5, 3, 4, 4), np.float16)
    assert len(list(save_data(tmp_path / "x.npz", values=values).inputs(IMAGE))) == 5
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
    with pytest.raises(InvalidInput, match=r"'c\.png' is not a picture"):
        labels_of(labels, data)


def test_values_that_are_not_numbers(tmp_path: Path) -> None:
    values = np.zeros((4, 3, 4, 4), np.float32)
    values[2, 1, 0, 3] = np.nan
    error = refused(save_data(tmp_path / "x.npz", image=values))
    assert error.message.endswith("input 2 of the calibration set has NaN or infinity in 'image'")
    too_large = np.full((1, 3, 4, 4), 1e300)
    assert "NaN or infinity" in refused(save_data(tmp_path / "y.npz", image=too_large)).message


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros((2, 3, 4, 5), np.float32), "the model takes [1, 3, 4, 4]"),
        (np.zeros((3, 4, 4), np.float32), "the model takes [1, 3, 4, 4]"),
        (np.zeros((2, 3, 4, 4), np.uint8), "has dtype uint8; the model takes float32"),
        (np.asfortranarray(np.zeros((2, 3, 4, 4), np.float32)), "in column-major order"),
        (np.array(["a", "b"]), "has dtype <U1"),
        (np.array(3, np.float32), "the model takes [1, 3, 4, 4]"),
        (np.zeros((0, 3, 4, 4), np.float32), "has no inputs"),
    ],
)
def test_arrays_that_do_not_fit(tmp_path: Path, values: np.ndarray[Any, Any], message: str) -> None:
    assert message in refused(save_data(tmp_path / "x.npz", image=values)).message


def test_python_objects_are_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, image=np.array([print, len], dtype=object), allow_pickle=True)
    refused(Data(path))


def header(shape: tuple[int, ...]) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return file.getvalue()


def test_an_array_that_claims_to_be_huge_uses_no_memory(tmp_path: Path) -> None:
    """The file has 200 bytes, which are a few megabytes of compressed zeros."""
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
    assert "has no array 'b'; it has: a, c" in refused(save_data(tmp_path / "x.npz", a=a, c=a), PAIR).message
    uneven = save_data(tmp_path / "y.npz", a=a, b=np.zeros((3, 3), np.int64))
    assert "different lengths: [2, 3]" in refused(uneven, PAIR).message
    np.save(tmp_path / "x.npy", a)
    assert "has one array" in refused(Data(tmp_path / "x.npy"), PAIR).message
    assert "pictures cannot be used" in refused(Data(tmp_path), PAIR).message
    (tmp_path / "empty").mkdir()
    assert "has no inputs" in refused(Data(tmp_path / "empty")).message


def test_labels_of_arrays(tmp_path: Path) -> None:
    path, data = tmp_path / "labels.csv", Data(tmp_path / "x.npz", most=2)
    path.write_text("class\n4\n5\n6\n")
    assert labels_of(path, data) == [4, 5]
    path.write_text("4\nfive\n")
    with pytest.raises(InvalidInput, match="label 2 is 'five'"):
        labels_of(path, data)


def test_labels_of_other_tasks_are_texts(tmp_path: Path) -> None:
    path, data = tmp_path / "labels.csv", Data(tmp_path / "x.npz", most=2)
    path.write_text('"3 4,5 6"\nnone\n')
    assert texts_of(path, data) == ["3 4,5 6", "none"]


def archive(path: Path, **members: bytes) -> Data:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return Data(path)


def png(level: int = 0, size: tuple[int, int] = (9, 7)) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, (level,) * 3).save(file, "PNG")
    return file.getvalue()


def test_pictures_in_an_archive(tmp_path: Path) -> None:
    """People create such archives: with entries for folders, and with files that a file manager adds."""
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.mkdir("deep")
        file.writestr("deep/b.png", png(0))
        file.writestr("a.PNG", png(255))
        file.writestr("__MACOSX/._a.png", b"no picture")
        file.writestr("deep/.c.png", b"no picture")
        file.writestr("Thumbs.db", b"no picture")
        file.writestr("labels.csv", "file,class\ndeep/b.png,3\n")
    data = Data(path)
    assert [tensors[0].max() for tensors in data.inputs(IMAGE)] == [1, 0]
    assert data.labels() == [None, 3]
    assert data.count(IMAGE) == 2
    assert "pictures cannot be used" in refused(data, PAIR).message


def test_labels_beside_arrays(tmp_path: Path) -> None:
    data = save_data(tmp_path / "x.npz", image=np.zeros((3, 3, 4, 4), np.float32))
    assert data.labels() == []
    with zipfile.ZipFile(data.path, "a") as file:
        file.writestr("labels.csv", "1\n2\n3\n")
    assert data.labels() == [1, 2, 3]
    assert data.count(IMAGE) == len(list(data.inputs(IMAGE))) == 3


def test_an_archive_without_pictures(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w"):
        pass
    assert "has 0 records" in refused(Data(tmp_path / "x.zip")).message
    assert "has no inputs" in refused(archive(tmp_path / "y.zip", notes=b"")).message


@pytest.mark.parametrize("name", ["../a.png", "/etc/a.png", "a/../../b.png", "C:a.png", "a\\b.png"])
def test_names_that_point_outside_the_archive(tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("good.png", png())
        file.writestr(name, png())
    assert "the zip archive has" in refused(Data(path)).message


def test_a_link_in_an_archive_is_refused(tmp_path: Path) -> None:
    path, link = tmp_path / "x.zip", zipfile.ZipInfo("a.png")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(link, "/etc/passwd")
    assert "'a.png', which is a link" in refused(Data(path)).message


def test_a_picture_that_expands_greatly_uses_no_memory(tmp_path: Path) -> None:
    """The declared size is checked before the picture is unpacked. If the declared size is too small, reading stops
    there.
    """
    data = archive(tmp_path / "x.zip", **{"a.png": bytes(65 << 20)})
    assert data.path.stat().st_size < 100_000
    assert "a.png: it is larger than 64 MiB" in refused(data).message
    content = data.path.read_bytes()
    position = content.rindex(b"PK\x01\x02") + 24  # the offset of the declared size in the central directory
    data.path.write_bytes(content[:position] + (1000).to_bytes(4, "little") + content[position + 4 :])
    assert refused(Data(data.path)).message.startswith(f"{data.path}: a.png: ")


def test_a_picture_of_too_many_pixels(tmp_path: Path) -> None:
    head = bytearray(png())
    head[16:24] = (1 << 16).to_bytes(4, "big") * 2
    head[29:33] = zlib.crc32(head[12:29]).to_bytes(4, "big")
    assert "65536 x 65536 pixels" in refused(archive(tmp_path / "x.zip", **{"a.png": bytes(head)})).message


@pytest.mark.slow
def test_thousands_of_pictures(tmp_path: Path) -> None:
    """Only the pictures that are used are unpacked, and their number is limited."""
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as file:
        for number in range(5_000):
            file.writestr(f"{number:05}.png", png() if number < 3 else b"damaged")
    assert len(list(Data(path, most=3).inputs(IMAGE))) == 3
    assert "00003.png" in refused(Data(path)).message
    with zipfile.ZipFile(path, "a") as file:
        for number in range(1 << 16):
            file.writestr(f"more/{number}.png", b"")
    assert "has 70536 records" in refused(Data(path)).message


def test_labels_that_expand_greatly(tmp_path: Path) -> None:
    data = archive(tmp_path / "x.zip", **{"a.png": png(), "labels.csv": b"a.png,1\n" * (3 << 20)})
    with pytest.raises(InvalidInput, match=r"labels\.csv is larger than 16 MiB"):
        data.labels()


def test_a_header_that_claims_to_be_huge_is_not_read(tmp_path: Path) -> None:
    """A header of version 2 can declare a length of 4 GiB."""
    start = b"\x93NUMPY\x02\x00" + (1 << 31).to_bytes(4, "little")
    data = archive(tmp_path / "x.npz", **{"image.npy": start + bytes(100 << 20)})
    assert "EOF" in refused(data).message


def test_an_archive_that_is_encrypted_or_damaged(tmp_path: Path) -> None:
    data = archive(tmp_path / "x.zip", **{"a.png": png()})
    content = bytearray(data.path.read_bytes())
    content[content.rindex(b"PK\x01\x02") + 8] |= 1
    data.path.write_bytes(content)
    assert "'a.png' with encryption" in refused(Data(data.path)).message
    np.savez(tmp_path / "y.npz", image=np.zeros((3, 3, 4, 4), np.float32))
    content = bytearray((tmp_path / "y.npz").read_bytes())
    content[300] ^= 1
    (tmp_path / "y.npz").write_bytes(content)
    assert "Bad CRC-32" in refused(Data(tmp_path / "y.npz")).message


def test_the_length_is_known_without_a_signature(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((7, 3)))
    assert Data(tmp_path / "x.npy").length() == 7
    assert Data(tmp_path / "x.npy", most=5).length() == 5
    assert save_data(tmp_path / "x.npz", a=np.zeros((4, 2)), b=np.zeros((4, 9))).length() == 4


@pytest.mark.parametrize("count", [2, 4])
def test_arrays_need_a_label_each(count: int, tmp_path: Path) -> None:
    data = save_data(tmp_path / "x.npz", a=np.zeros((3, 2)))
    data.check_labels([0, 1, 2], "labels.csv")
    with pytest.raises(InvalidInput, match=rf"labels\.csv has {count} labels, but .* has 3 inputs"):
        data.check_labels([0] * count, "labels.csv")


def test_one_picture_needs_a_label(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        Image.new("RGB", (4, 4)).save(tmp_path / name)
    Data(tmp_path).check_labels([None, 3], "labels.csv")
    with pytest.raises(InvalidInput, match=r"labels\.csv labels no picture"):
        Data(tmp_path).check_labels([None, None], "labels.csv")
