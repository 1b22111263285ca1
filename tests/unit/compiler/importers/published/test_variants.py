"""Tests of the choice among the variants of a published model."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.compiler.importers.published.variants import choose, files_of, variants_in
from service.core.errors import InvalidInput
from service.core.target import parse_target
from tests.support.published_model import write

TRANSFORMERS_JS = [
    "model",
    *(f"model_{each}" for each in ["bnb4", "fp16", "int8", "q4", "q4f16", "quantized", "uint8"]),
]
SENTENCES = [
    "model",
    *(
        f"model_{each}"
        for each in ["O1", "O2", "O3", "O4", "qint8_arm64", "qint8_avx512", "qint8_avx512_vnni", "quint8_avx2"]
    ),
]


def names(stems: list[str], folder: str = "onnx") -> dict[str, bytes]:
    return {f"{folder}/{stem}.onnx": b"." * index for index, stem in enumerate(stems)}


@pytest.mark.parametrize(
    ("stems", "target", "expected"),
    [
        (TRANSFORMERS_JS, "x86-64-v4+vnni", "int8"),
        (SENTENCES, "x86-64-v4+vnni", "qint8_avx512_vnni"),
        (SENTENCES, "x86-64-v4+amx", "qint8_avx512_vnni"),
        (SENTENCES, "x86-64-v3+avxvnni", "qint8_avx512_vnni"),
        (SENTENCES, "x86-64-v4", "qint8_avx512"),
        (SENTENCES, "aarch64+dotprod", "qint8_arm64"),
        (SENTENCES, None, "qint8_arm64"),
        ([*SENTENCES, "model_quantized"], None, "quantized"),
        ([*SENTENCES, "model_quantized"], "riscv64+v", "quantized"),
        (["model", "model_q4", "model_q4f16", "model_fp16"], None, "q4"),
        (["model", "model_fp16", "model_O4"], None, "model"),
        (SENTENCES, "x86-64-v3", "quint8_avx2"),
        (["model", "model_q1", "model_q2f16", "model_q2"], None, "model"),
        (["model_optimized", "model_optimized_quantized"], None, "optimized_quantized"),
        (["model_optimized", "model_fp16", "model_opt"], None, "optimized"),
        (["all-minilm-l6-v2", "all-minilm-l6-v2-int8"], None, "all-minilm-l6-v2-int8"),
        (["text_model_quantized", "model"], None, "model"),
    ],
)
def test_the_best_variant_for_the_target_is_chosen(
    tmp_path: Path, stems: list[str], target: str | None, expected: str
) -> None:
    folder = write(tmp_path, names(stems))
    assert choose(folder, None, parse_target(target) if target else None).name == expected


@pytest.mark.parametrize("name", ["q4", "model_q4.onnx", "onnx/model_q4.onnx"])
def test_a_variant_can_be_named(tmp_path: Path, name: str) -> None:
    assert choose(write(tmp_path, names(TRANSFORMERS_JS)), name, None).file == "onnx/model_q4.onnx"


def test_the_size_includes_external_data(tmp_path: Path) -> None:
    folder = write(tmp_path, {"onnx/model.onnx": b"1", "onnx/model.onnx_data": b"22", "onnx/model.onnx_data_1": b"3"})
    (variant,) = variants_in(folder)
    assert (variant.name, variant.precision, variant.size_bytes) == ("model", "float32", 4)


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        *((each, "4-bit weights") for each in ("q4", "bnb4")),
        *((each, "4-bit weights, float16") for each in ("q4f16",)),
        *((each, "8-bit") for each in ("quantized", "int8", "uint8", "q8", "qint8_arm64", "quint8_avx2")),
        *((each, "float16") for each in ("fp16", "O4")),
        *((each, "float32") for each in ("O1", "O2", "O3", "opt", "optimized", "fp32")),
        *((each, "1-bit or 2-bit weights") for each in ("q1", "q2", "q1f16", "q2f16")),
        ("final", "not in its name"),
    ],
)
def test_the_name_gives_the_precision(tmp_path: Path, name: str, precision: str) -> None:
    (variant,) = variants_in(write(tmp_path, names([f"model_{name}"])))
    assert (variant.name, variant.precision) == (name, precision)


OPENVINO = {
    "openvino/openvino_model.xml": b"<net",
    "openvino/openvino_model.bin": b"22",
    "openvino/openvino_model_qint8_quantized.xml": b"<n",
    "openvino/openvino_model_qint8_quantized.bin": b"1",
    "openvino/openvino_tokenizer.xml": b"",
    "openvino/openvino_tokenizer.bin": b"",
}


def test_the_folder_of_openvino_has_variants(tmp_path: Path) -> None:
    folder = write(tmp_path, OPENVINO)
    found = [(each.name, each.precision, each.size_bytes, each.is_whole) for each in variants_in(folder)]
    assert found == [
        ("openvino_model", "float32", 6, True),
        ("openvino_model_qint8_quantized", "8-bit", 3, True),
    ]
    assert choose(folder, None, None).name == "openvino_model_qint8_quantized"
    assert files_of(folder, "openvino/openvino_model.xml") == [
        "openvino/openvino_model.bin",
        "openvino/openvino_model.xml",
    ]


def test_onnx_comes_before_openvino(tmp_path: Path) -> None:
    folder = write(tmp_path, {**OPENVINO, "onnx/model_quantized.onnx": b"." * 9})
    assert choose(folder, None, None).name == "quantized"


def test_a_tflite_file_is_a_variant(tmp_path: Path) -> None:
    folder = write(tmp_path, {"mobilenet_float.tflite": b"", "mobilenet_full_integer_quant.tflite": b"."})
    assert choose(folder, None, None).file == "mobilenet_full_integer_quant.tflite"


@pytest.mark.parametrize(
    ("files", "variant", "message"),
    [
        ({"model.safetensors": b""}, None, "no ONNX or TFLite file"),
        ({"deep/er/model.onnx": b""}, None, "no ONNX or TFLite file"),
        (names(["model"]), "q5", "contains no variant 'q5'"),
        (names(["encoder_model", "decoder_model_merged"]), None, "in parts"),
    ],
)
def test_a_folder_without_the_variant_is_refused(
    tmp_path: Path, files: dict[str, bytes], variant: str | None, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        choose(write(tmp_path, files), variant, None)
