"""The format of a file is detected from its content."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from service.compiler.importers.detect import HEAD_BYTES, ONNX, PT2, TFLITE, TORCHSCRIPT, ZIP, detect_format, format_of
from service.core.errors import UnsupportedFormat
from tests.support.onnx_catalog import CATALOG, case
from tests.support.tflite_catalog import MODELS


def test_tflite_is_detected_by_its_file_identifier() -> None:
    assert detect_format(MODELS["conv int8"]()[:HEAD_BYTES]) == TFLITE


@pytest.mark.parametrize("name", CATALOG)
def test_onnx_is_detected_by_its_first_fields(name: str) -> None:
    assert detect_format(case(name, 0)[:HEAD_BYTES]) == ONNX


@pytest.mark.parametrize(
    "head",
    [
        b"\x08\x08\x12\x07pytorch\x1a\x062.13.0:\xab\xc2\xda0\n\xae\x01",
        # the name is longer than the bytes that are checked
        b"\x08\x03\x12" + b"\x7f" + b"a producer of many words" * 3,
        b"\x08\x07:\x0a\n\x08\n\x01x\x12\x01y",
    ],
)
def test_onnx_files_of_other_writers_are_detected(head: bytes) -> None:
    assert detect_format(head[:HEAD_BYTES]) == ONNX


@pytest.mark.parametrize(
    "head",
    [
        b"\x08\x00:\x04",  # An invalid version.
        b"\x08\x08\x12\x03\x00\x01\x02",  # A name that is not UTF-8.
        b"\x08\x08\x1a\x01a\x12\x01b",  # Fields in a different order.
        b"\x08\x08\x2a\x01a",  # A number that is encoded as text.
        b"\x0a\x08:\x04",
        b"\x08\x08",
    ],
)
def test_other_bytes_are_not_detected_as_onnx(head: bytes) -> None:
    with pytest.raises(UnsupportedFormat):
        detect_format(head)


def test_the_message_for_an_empty_file_calls_it_empty() -> None:
    with pytest.raises(UnsupportedFormat, match="the file is empty"):
        detect_format(b"")


@pytest.mark.parametrize(
    ("head", "what"),
    [
        (b"\x89HDF\r\n\x1a\n", "HDF5"),
        (b"\x1f\x8b\x08\x00", "gzip"),
        (b"\x80\x02}q\x00", "pickle"),
        (b"\x89PNG\r\n", "PNG"),
        (b"<!DOCTYPE html>", "HTML"),
        (b"version https://git-lfs.github.com/spec/v1", "Git LFS"),
    ],
)
def test_common_mistakes_are_named_with_a_hint(head: bytes, what: str) -> None:
    with pytest.raises(UnsupportedFormat, match=what) as caught:
        detect_format(head)
    assert caught.value.hint


def archive(*names: str) -> io.BytesIO:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as written:
        for name in names:
            written.writestr(name, b"")
    file.seek(0)
    return file


def test_an_archive_may_be_a_model_until_its_end_has_arrived() -> None:
    assert detect_format(b"PK\x03\x04\x14\x00") == ZIP


def test_torchscript_is_detected_by_the_names_in_its_archive() -> None:
    assert format_of(archive("net/data.pkl", "net/code/__torch__.py", "net/version")) == TORCHSCRIPT
    assert format_of(archive("net/archive_format", "net/models/model.json")) == PT2


@pytest.mark.parametrize(
    ("names", "what"),
    [
        (["archive/data.pkl", "archive/data/0"], "a state_dict or another object that torch.save wrote, not a program"),
        (["net/archive_format", "net/data/aotinductor/model.so"], "without an exported program"),
        (["serialized_exported_program.json", "version"], "as PyTorch wrote them before 2.8"),
        (["config.json", "model.weights.h5"], "a .keras archive"),
        (["readme.txt"], "the file is a zip archive$"),
    ],
)
def test_other_archives_are_named_with_a_hint(names: list[str], what: str) -> None:
    with pytest.raises(UnsupportedFormat, match=what) as caught:
        format_of(archive(*names))
    assert caught.value.hint


@pytest.mark.parametrize("cut", [1, 20, 60])
def test_the_message_for_a_truncated_archive_calls_it_damaged(cut: int) -> None:
    whole = archive("net/data.pkl", "net/code/__torch__.py").getvalue()
    with pytest.raises(UnsupportedFormat, match="damaged"):
        format_of(io.BytesIO(whole[:-cut]))


@given(st.binary(max_size=300))
def test_a_damaged_directory_is_refused(rest: bytes) -> None:
    assume(not rest.startswith(b"TFL3"))  # the identifier of a TFLite file
    with pytest.raises(UnsupportedFormat):
        format_of(io.BytesIO(b"PK\x03\x04" + rest + b"PK\x05\x06" + rest))


@given(st.binary(max_size=HEAD_BYTES))
def test_any_other_file_is_unsupported(head: bytes) -> None:
    # A short ONNX file may begin with almost any bytes after the tag of its version.
    if head[4:8] != b"TFL3" and not head.startswith((b"PK\x03\x04", b"\x08")):
        with pytest.raises(UnsupportedFormat):
            detect_format(head)


def test_detection_loads_neither_tvm_nor_the_schema() -> None:
    code = "import sys, service.compiler.importers.detect; print({'tvm', 'tflite', 'flatbuffers'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"
