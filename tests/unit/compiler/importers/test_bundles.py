"""A model is chosen from a bundle of TFLite models."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from service.compiler.importers import bundles
from service.compiler.importers.detect import format_of
from service.compiler.importers.uploads import upload_of
from service.core.errors import InvalidInput, MalformedModel, UnsupportedFormat
from tests.support.tflite_bundles import MODEL, TOKENIZER, archive, container

ONE, TWO = (b"\x1c\0\0\0TFL3" + text * 100 for text in (b"one", b"two"))
NESTED = {
    "hand_landmarker.task": archive({"hand_detector.tflite": ONE}),
    "gesture.tflite": TWO,
    "TF_LITE_PREFILL_DECODE": ONE,
    "labels.txt": b"TFL3",
}


def _write(folder: Path, data: bytes, name: str = "model.task") -> Path:
    (folder / name).write_bytes(data)
    return folder / name


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_an_archive_lists_its_models(tmp_path: Path, method: int) -> None:
    path = _write(tmp_path, archive(NESTED, method))
    assert bundles.is_bundle(path)
    with pytest.raises(InvalidInput, match=r"model\.task contains 3 models") as caught, upload_of(path):
        pass
    names = "hand_landmarker.task/hand_detector.tflite, gesture.tflite, TF_LITE_PREFILL_DECODE"
    assert caught.value.hint == f"choose one with --member: {names}"
    with upload_of(path, "hand_landmarker.task/hand_detector.tflite") as upload:
        assert upload.read_bytes() == ONE


@pytest.mark.parametrize("shape", ["task", "litertlm"])
def test_an_only_model_is_chosen(tmp_path: Path, shape: str) -> None:
    data = archive({"a.tflite": ONE}) if shape == "task" else container([("", TOKENIZER, b"x"), ("a", MODEL, ONE)])
    with upload_of(_write(tmp_path, data)) as upload:
        assert upload.read_bytes() == ONE


def test_a_container_lists_its_models(tmp_path: Path) -> None:
    sections = [
        ("tf_lite_embedder", MODEL, ONE),
        ("", TOKENIZER, b"t"),
        ("", MODEL, TWO),
        ("tf_lite_embedder", MODEL, TWO),
    ]
    path = _write(tmp_path, container(sections), "model.litertlm")
    assert [*bundles.members_of(path)] == ["tf_lite_embedder", "section_2", "tf_lite_embedder_1"]
    with upload_of(path, "section_2") as upload:
        assert upload.read_bytes() == TWO


def test_an_unknown_member(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="has no model 'b'"), upload_of(_write(tmp_path, archive(NESTED)), "b"):
        pass


def test_a_file_that_is_no_bundle(tmp_path: Path) -> None:
    with (
        pytest.raises(InvalidInput, match=r"x\.tflite is not a bundle"),
        upload_of(_write(tmp_path, ONE, "x.tflite"), "b"),
    ):
        pass


@pytest.mark.parametrize("data", [archive(NESTED), container([("a", MODEL, ONE)])])
def test_a_server_refuses_a_whole_bundle(tmp_path: Path, data: bytes) -> None:
    with _write(tmp_path, data).open("rb") as file, pytest.raises(UnsupportedFormat, match="a bundle") as caught:
        format_of(file)
    assert "--member" in str(caught.value.hint)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:20],
        lambda data: data[:24] + (1 << 60).to_bytes(8, "little") + data[32:],
        lambda data: data[:24] + (8).to_bytes(8, "little") + data[32:],
        lambda data: data[:32] + b"\xff" * 80 + data[112:],
        lambda data: data[:32] + bytes(80) + data[112:],
        lambda data: data[: 1 << 14],
    ],
)
def test_a_damaged_container_is_refused(tmp_path: Path, damage: object) -> None:
    path = _write(tmp_path, damage(container([("a", MODEL, ONE)])))  # type: ignore[operator]
    with pytest.raises((MalformedModel, InvalidInput)):
        bundles.extract(path, "", tmp_path / "out")


def test_every_changed_byte_of_a_header_is_harmless(tmp_path: Path) -> None:
    whole = container([("a", MODEL, ONE), ("b", MODEL, TWO)])
    end = int.from_bytes(whole[24:32], "little")
    for position in range(8, end):
        for value in (0, 0x7F, 0xFF):
            path = _write(tmp_path, whole[:position] + bytes([value]) + whole[position + 1 :])
            try:
                members = bundles.members_of(path)
            except MalformedModel:
                continue
            assert all(0 <= each.begin < each.end <= len(whole) for each in members.values())


def test_sections_outside_of_the_file_are_refused(tmp_path: Path) -> None:
    path = _write(tmp_path, container([("a", MODEL, ONE)], shift=1 << 20))
    with pytest.raises(MalformedModel, match="section 0 of the LiteRT-LM container is outside"):
        bundles.members_of(path)


def test_archives_are_opened_to_a_depth(tmp_path: Path) -> None:
    data = archive({"a.tflite": ONE})
    for _ in range(5):
        data = archive({"a.task": data})
    assert bundles.members_of(_write(tmp_path, data)) == {}
