"""Formats are told apart by content."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.compiler.importers.detect import HEAD_BYTES, TFLITE, detect_format
from service.core.errors import UnsupportedFormat
from tests.support.tflite_catalog import MODELS


def test_tflite_is_known_by_its_file_identifier() -> None:
    assert detect_format(MODELS["conv int8"]()[:HEAD_BYTES]) == TFLITE


def test_empty_file_is_called_empty() -> None:
    with pytest.raises(UnsupportedFormat, match="the file is empty"):
        detect_format(b"")


@pytest.mark.parametrize(
    ("head", "what"),
    [
        (b"PK\x03\x04\x14\x00", "zip archive"),
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


@given(st.binary(max_size=HEAD_BYTES))
def test_anything_else_is_unsupported(head: bytes) -> None:
    if head[4:8] != b"TFL3":
        with pytest.raises(UnsupportedFormat):
            detect_format(head)


def test_detection_loads_neither_tvm_nor_the_schema() -> None:
    code = "import sys, service.compiler.importers.detect; print({'tvm', 'tflite', 'flatbuffers'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"
