"""Labels and preprocessing from TFLite's metadata. Any problem with them gives a notice, not an error."""

from __future__ import annotations

import random
import struct
import time
import zipfile
from functools import cache
from pathlib import Path

import pytest

from service.compiler.importers.auto import import_model
from service.compiler.importers.facts import facts_of
from service.compiler.importers.tflite.file.metadata import metadata_of
from service.compiler.importers.tflite.file.reader import read_model
from service.compiler.importers.tflite.signature import signature_of
from service.core.models.facts import Facts
from service.core.models.metadata import NOTHING, Layout, ModelMetadata
from service.core.models.signature import ModelSignature, Quantization, TensorSpec
from tests.support.fuzz import mutations
from tests.support.shared_data import require_shared_data
from tests.support.tflite_metadata import (
    AXIS_LABELS,
    FEATURE,
    IMAGE,
    VALUE_LABELS,
    Described,
    append_files,
    labels_in,
    metadata_buffer,
    with_metadata,
)

EXAMPLES = Path(__file__).parents[6] / "examples"
DIGITS = (EXAMPLES / "digits_int8.tflite").read_bytes()
LABELS = tuple(f"number {digit}" for digit in range(10))
FILES = {"labels.txt": "\n".join(LABELS) + "\n"}
CENTERED = Described(IMAGE, mean=[127.5], std=[127.5])
BUFFER = metadata_buffer([CENTERED], [labels_in()])
HALF = ModelMetadata(mean=(0.5,), std=(0.5,), layout=Layout.NHWC)


@cache
def signature() -> ModelSignature:
    return signature_of(read_model(DIGITS))


def found(metadata: bytes, files: dict[str, str | bytes] | None = None) -> tuple[ModelMetadata, tuple[str, ...]]:
    return metadata_of(with_metadata(DIGITS, metadata, files), signature())


def of_image(spec: TensorSpec, described: Described) -> tuple[ModelMetadata, tuple[str, ...]]:
    """Returns the metadata of a model whose only input is `spec`."""
    data = with_metadata(DIGITS, metadata_buffer([described], []))
    return metadata_of(data, ModelSignature((spec,), signature().outputs))


def test_labels_and_normalization_are_read() -> None:
    expected = ModelMetadata(LABELS, (0.5,), (0.5,), None, Layout.NHWC)
    assert found(BUFFER, dict(FILES)) == (expected, ())


def test_a_model_without_metadata_has_none() -> None:
    assert metadata_of(DIGITS, signature()) == (NOTHING, ())


def test_an_import_returns_the_metadata() -> None:
    imported = import_model(with_metadata(DIGITS, BUFFER, FILES))
    facts = Facts.from_json(facts_of(imported).to_json())
    assert facts.metadata.labels == LABELS
    assert facts.notices == ()


def test_a_notice_is_among_the_facts() -> None:
    facts = facts_of(import_model(with_metadata(DIGITS, BUFFER)))
    assert facts.metadata == HALF
    assert Facts.from_json(facts.to_json()).notices == facts.notices != ()


@pytest.mark.parametrize("name", ["mobilenet_v1_0.25_128_quant", "tf2_mobilenet_v2_1.0_224_ptq"])
def test_real_models(name: str) -> None:
    data = (require_shared_data() / "models" / "tflite" / f"{name}.tflite").read_bytes()
    metadata, notices = metadata_of(data, signature_of(read_model(data)))
    assert notices == ()
    assert metadata.mean == metadata.std == (0.5,)
    assert metadata.labels[:3] == ("background", "tench, Tinca tinca", "goldfish, Carassius auratus")
    assert len(metadata.labels) == 1001


class TestNormalization:
    RGB = TensorSpec("image", "FP32", (1, 8, 8, 3))

    def test_channels_may_have_different_values(self) -> None:
        metadata, _ = of_image(self.RGB, Described(IMAGE, mean=[51.0, 102.0, 153.0], std=[255.0, 51.0, 25.5]))
        assert metadata.mean == (0.2, 0.4, 0.6)
        assert metadata.std == (1.0, 0.2, 0.1)

    def test_defaults_are_0_and_1_for_pixels(self) -> None:
        assert of_image(self.RGB, Described(IMAGE, std=[255.0]))[0].mean == (0.0,)
        assert of_image(self.RGB, Described(IMAGE, mean=[255.0]))[0].std == (1 / 255,)

    def test_other_content_is_not_an_image(self) -> None:
        assert of_image(self.RGB, Described(FEATURE, mean=[127.5], std=[127.5])) == (NOTHING, ())

    def test_content_may_be_left_out(self) -> None:
        assert of_image(self.RGB, Described(mean=[127.5], std=[127.5]))[0] == ModelMetadata(mean=(0.5,), std=(0.5,))

    @pytest.mark.parametrize(
        ("mean", "std"),
        [
            ([0.0], [0.0]),
            ([0.0], [-1.0]),
            ([float("nan")], [1.0]),
            ([0.0], [float("inf")]),
            ([1.0, 2.0], [1.0]),
            ([0.0] * 1000, [1.0]),
        ],
    )
    def test_absurd_numbers_are_left_out(self, mean: list[float], std: list[float]) -> None:
        metadata, (notice,) = of_image(self.RGB, Described(IMAGE, mean=mean, std=std))
        assert metadata == NOTHING
        assert "preprocessing" in notice

    def test_three_channels_of_a_gray_input_are_left_out(self) -> None:
        _, (notice,) = found(metadata_buffer([Described(IMAGE, mean=[1, 2, 3], std=[1.0])], []))
        assert "'image' has 1 channels" in notice

    @pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (0.0, 255.0 * 100), (255.0 * 3, 255.0)])
    def test_values_that_the_input_cannot_represent_are_left_out(self, mean: float, std: float) -> None:
        spec = TensorSpec("image", "UINT8", (1, 8, 8, 3), Quantization(1 / 255, 0))
        metadata, (notice,) = of_image(spec, Described(IMAGE, mean=[mean], std=[std]))
        assert metadata == NOTHING
        assert "'image' can hold only 0 to 1" in notice

    def test_a_calibrated_range_may_differ_from_the_pixels_range(self) -> None:
        """A MobileNet of torchvision is such a model: three channels share one scale, and a few values are clipped."""
        spec = TensorSpec("image", "INT8", (1, 8, 8, 3), Quantization(0.01865845, -14))
        described = Described(IMAGE, mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375])
        metadata, notices = of_image(spec, described)
        assert notices == ()
        assert metadata.mean == pytest.approx((0.485, 0.456, 0.406))

    def test_an_integer_input_without_a_scale_has_none(self) -> None:
        _, (notice,) = of_image(TensorSpec("image", "UINT8", (1, 8, 8, 3)), CENTERED)
        assert "no scale" in notice

    def test_inputs_with_different_values_have_none(self) -> None:
        described = [Described(IMAGE, mean=[mean], std=[255.0]) for mean in (0.0, 1.0)]
        data = with_metadata(DIGITS, metadata_buffer(described, []))
        metadata, (notice,) = metadata_of(data, ModelSignature((self.RGB, self.RGB), ()))
        assert metadata == NOTHING
        assert "have different ones" in notice

    def test_metadata_of_missing_tensors_is_a_notice(self) -> None:
        _, (notice,) = found(metadata_buffer([CENTERED, CENTERED], []))
        assert "describes 2 inputs, but the model has 1" in notice


class TestLabels:
    def test_labels_may_be_compressed(self) -> None:
        data = with_metadata(DIGITS, BUFFER, FILES, zipfile.ZIP_DEFLATED)
        assert metadata_of(data, signature())[0].labels == LABELS

    def test_windows_line_ends_and_a_byte_order_mark_are_allowed(self) -> None:
        text = "\ufeff" + "\r\n".join(LABELS)
        assert found(BUFFER, {"labels.txt": text})[0].labels == LABELS

    def test_labels_without_a_locale_are_preferred(self) -> None:
        files = [("en.txt", AXIS_LABELS, "en"), ("labels.txt", AXIS_LABELS, ""), ("fr.txt", AXIS_LABELS, "fr")]
        buffer = metadata_buffer([], [Described(files=files)])
        assert found(buffer, {"en.txt": "no", "fr.txt": "non", **FILES})[0].labels == LABELS

    def test_names_of_values_are_not_labels(self) -> None:
        buffer = metadata_buffer([], [Described(files=[("labels.txt", VALUE_LABELS, "")])])
        assert found(buffer, dict(FILES)) == (NOTHING, ())

    def test_control_characters_of_terminals_are_replaced(self) -> None:
        text = "\n".join(["\x1b[2Jcat", *LABELS[1:]])
        assert found(BUFFER, {"labels.txt": text})[0].labels[0] == "_[2Jcat"

    @pytest.mark.parametrize(
        ("files", "message"),
        [
            ({}, "zip archive cannot be read"),
            ({"other.txt": "a"}, "does not contain the record 'labels.txt'"),
            ({"labels.txt": "one\ntwo"}, "2 of them in 'labels.txt', and 10 classes"),
            ({"labels.txt": b"\xff\xfe"}, "not UTF-8"),
            ({"labels.txt": "a", "../x": "b"}, "outside of its folder"),
        ],
    )
    def test_the_notice_gives_the_reason(self, files: dict[str, str | bytes], message: str) -> None:
        metadata, (notice,) = found(BUFFER, files)
        assert metadata == HALF, "the preprocessing stays"
        assert message in notice

    def test_a_zip_bomb_is_not_unpacked(self) -> None:
        data = with_metadata(DIGITS, BUFFER, {"labels.txt": b"\n" * (1 << 26)}, zipfile.ZIP_DEFLATED)
        assert len(data) < 1 << 20
        _, (notice,) = metadata_of(data, signature())
        assert "record 'labels.txt' of 67108864 bytes" in notice

    def test_a_zip_bomb_with_a_false_size_is_not_unpacked(self) -> None:
        size = 1 << 26
        model = with_metadata(DIGITS, BUFFER)
        archive = append_files(model, {"labels.txt": b"\n" * size}, zipfile.ZIP_DEFLATED)[len(model) :]
        assert archive.count(struct.pack("<I", size)) == 2
        claimed = archive.replace(struct.pack("<I", size), struct.pack("<I", 20))
        _, (notice,) = metadata_of(model + claimed, signature())
        assert "labels.txt" in notice

    def test_a_directory_of_a_million_records_takes_bounded_time(self) -> None:
        files = {str(number): b"" for number in range(80_000)}
        data = append_files(with_metadata(DIGITS, BUFFER), {**files, **FILES})
        started = time.monotonic()
        metadata_of(data, signature())
        assert time.monotonic() - started < 20  # limit for a machine under load; an idle one takes less than one second

    def test_labels_far_from_the_end_of_the_file_are_found(self) -> None:
        data = with_metadata(DIGITS, BUFFER) + bytes(16 << 20)
        assert metadata_of(append_files(data, FILES), signature())[0].labels == LABELS


class TestDamage:
    """Damaged metadata does not affect the model, which is imported with at most a notice."""

    def test_another_identifier_is_a_notice(self) -> None:
        metadata, (notice,) = found(metadata_buffer([CENTERED], [], b"M002"))
        assert metadata == NOTHING
        assert "M002" in notice

    def test_metadata_of_megabytes_is_a_notice(self) -> None:
        _, (notice,) = found(BUFFER + bytes(1 << 20))
        assert "the limit is" in notice

    def test_an_empty_buffer_is_a_notice(self) -> None:
        assert len(found(b"")[1]) == 1

    def test_a_missing_buffer_is_a_notice(self) -> None:
        _, (notice,) = metadata_of(with_metadata(DIGITS, BUFFER, buffer=9999), signature())
        assert "buffer 9999" in notice

    def test_every_damage_to_the_tables_is_at_most_a_notice(self) -> None:
        outcomes = [found(damaged)[1] for _, damaged in list(mutations(BUFFER))[::3]]
        assert sum(map(bool, outcomes)) > 100
        assert not all(outcomes), "the verifier refuses all mutations, so only the verifier is tested"

    @pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    def test_every_damage_to_the_archive_is_at_most_a_notice(self, method: int) -> None:
        model = with_metadata(DIGITS, BUFFER)
        archive = append_files(model, FILES, method)[len(model) :]
        outcomes = [metadata_of(model + damaged, signature()) for _, damaged in mutations(archive)]
        assert all(metadata.mean == (0.5,) for metadata, _ in outcomes)
        assert sum(bool(notices) for _, notices in outcomes) > 100

    def test_a_model_with_several_damages_is_still_imported(self) -> None:
        generator = random.Random(0)
        model = with_metadata(DIGITS, BUFFER)
        data = append_files(model, FILES)
        parts = [range(start := data.index(BUFFER), start + len(BUFFER)), range(len(model), len(data))]
        for _ in range(300):
            damaged = bytearray(data)
            for _ in range(generator.randint(1, 8)):
                damaged[generator.choice(generator.choice(parts))] = generator.randrange(256)
            metadata_of(bytes(damaged), signature_of(read_model(bytes(damaged))))
