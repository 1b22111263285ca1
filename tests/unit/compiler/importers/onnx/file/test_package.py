"""ONNX models with weights in separate files: how they are packed, and how the archive is read."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from service.compiler.importers.detect import ONNX, format_of
from service.compiler.importers.onnx.file.package import pack_files, unpack
from service.compiler.importers.onnx.file.reader import read_model
from service.compiler.importers.onnx.importer import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import ONNXRUNTIME
from service.core.errors import InvalidInput, MalformedModel, Unsupported, UnsupportedFormat
from tests.support.onnx_builder import OnnxBuilder
from tests.support.onnx_reference import Reference

WEIGHTS = np.arange(-32, 32, dtype=np.int8).reshape(8, 8)
DATA = b"head" + WEIGHTS.tobytes() + b"tail"


def dense(location: str = "weights.bin", offset: int | None = 4, length: int | None = 64) -> bytes:
    """Returns a dense layer between conversions whose weights are in a separate file."""
    model = OnnxBuilder()
    x = model.dequantized(model.quantized(model.input("x", "float32", [2, 8]), 0.05, 3, "uint8"), 0.05, 3, "uint8")
    w = model.dequantized(model.external(WEIGHTS, location, offset, length), 0.01, 0, "int8")
    y = model.quantized(model.node("MatMul", [x, w]), 0.1, 100, "uint8")
    model.output(model.dequantized(y, 0.1, 100, "uint8"), "float32")
    return model.build()


def archive(files: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as made:
        for name, data in files.items():
            made.writestr(name, data)
    return packed.getvalue()


def folder(tmp_path: Path, model: bytes, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (tmp_path / "net.onnx").write_bytes(model)
    return tmp_path / "net.onnx"


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_weights_are_read_from_the_archive_and_equal_onnx_runtime(tmp_path: Path, method: int) -> None:
    upload = archive({"net.onnx": dense(), "weights.bin": DATA}, method)
    assert format_of(io.BytesIO(upload)) == ONNX
    path = folder(tmp_path, dense(), {"weights.bin": DATA})
    x = np.random.default_rng(0).normal(0, 3, (2, 8)).astype(np.float32)
    (ours,) = oracle.run(import_model(upload).module, get_mode(ONNXRUNTIME), [x])
    np.testing.assert_array_equal(ours, Reference(path, optimized=True)([x])[0])


def test_without_offset_and_length_the_weights_are_the_whole_file() -> None:
    upload = archive({"net.onnx": dense(offset=None, length=None), "weights.bin": WEIGHTS.tobytes()})
    (found,) = [each for each in read_model(upload).constants.values() if each.shape == (8, 8)]
    np.testing.assert_array_equal(found.data, WEIGHTS)


@pytest.mark.parametrize(
    ("offset", "length"), [(5, 64), (9, 64), (4, 63), (4, 65), (-1, 64), (1 << 70, 64), (0, 1 << 63), (72, 64)]
)
def test_weights_outside_the_file_are_refused(offset: int, length: int) -> None:
    if (offset, length) == (5, 64):
        offset = len(DATA) - 63
    with pytest.raises(MalformedModel, match=r"the constant c\d+ "):
        read_model(archive({"net.onnx": dense(offset=offset, length=length), "weights.bin": DATA}))


@pytest.mark.parametrize("location", ["weights.bin", "../weights.bin", "/etc/passwd", "", "net.onnx/x"])
@pytest.mark.parametrize("alone", [True, False])
def test_a_file_that_is_missing_from_the_upload_is_named(location: str, alone: bool) -> None:
    upload = dense(location) if alone else archive({"net.onnx": dense(location), "other.bin": DATA})
    with pytest.raises(Unsupported, match=f"uses the constant c.*the file '{location}', which is not in the upload"):
        import_model(upload)


def test_two_models_in_one_archive_are_refused() -> None:
    upload = archive({"a.onnx": dense(), "b.onnx": dense(), "weights.bin": DATA})
    with pytest.raises(UnsupportedFormat):
        format_of(io.BytesIO(upload))
    with pytest.raises(MalformedModel, match=r"contains 2 files \*\.onnx"):
        unpack(upload)


def test_a_model_is_packed_with_the_files_that_it_names(tmp_path: Path) -> None:
    path = folder(tmp_path, dense("parts/weights.bin"), {"parts/weights.bin": DATA, "private.txt": b"not asked for"})
    packed = tmp_path / "upload.zip"
    assert pack_files(path, packed)
    with zipfile.ZipFile(packed) as made:
        assert made.namelist() == ["model.onnx", "parts/weights.bin"]
    import_model(packed.read_bytes())
    again = tmp_path / "again.zip"
    pack_files(path, again)
    assert again.read_bytes() == packed.read_bytes(), "one model has one digest"


def test_a_model_in_one_file_is_not_packed(tmp_path: Path) -> None:
    model = OnnxBuilder()
    model.output(model.node("Relu", [model.input("x", "float32", [1])]), "float32")
    path = folder(tmp_path, model.build(), {})
    assert not pack_files(path, tmp_path / "upload.zip")
    assert not (tmp_path / "upload.zip").exists()


@pytest.mark.parametrize("location", ["../secret", "/etc/passwd", "a/../b", "", ".", "a//b", "a\\b"])
def test_nothing_outside_the_folder_is_packed(tmp_path: Path, location: str) -> None:
    (tmp_path / "secret").write_bytes(DATA)
    path = folder(tmp_path / "models", dense(location), {"b": DATA})
    with pytest.raises(InvalidInput, match="which is not in its folder"):
        pack_files(path, tmp_path / "upload.zip")


def test_a_link_that_leads_out_of_the_folder_is_not_packed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(DATA)
    path = folder(tmp_path / "models", dense(), {"other.bin": DATA})
    (tmp_path / "models" / "weights.bin").symlink_to(tmp_path / "secret")
    with pytest.raises(InvalidInput, match="which is not in its folder"):
        pack_files(path, tmp_path / "upload.zip")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    path = folder(tmp_path, dense(), {})
    with pytest.raises(InvalidInput, match=r"stores c\d+ in 'weights.bin', which does not exist"):
        pack_files(path, tmp_path / "upload.zip")
