"""Tests of the tokenizers in the metadata of TFLite files. The expected ids are those of tflite-support 0.4.4."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from service.compiler.importers.published.files import SingleFile
from service.compiler.importers.published.reading import read_published
from service.compiler.importers.published.tflite_texts import is_text_model, read_tflite_texts
from service.core.errors import InvalidInput, Unsupported
from service.core.models.metadata import ModelMetadata
from service.core.models.task import Activation, Task
from service.core.models.text import TokenInput
from tests.support.tflite_builder import ModelBuilder
from tests.support.tflite_metadata import Described, Tokenizer, labels_in, metadata_buffer, with_metadata

tokenizers = pytest.importorskip("tokenizers", reason="builds tokenizers of vocabularies")

LENGTH = 16
BERT = ("ids", "mask", "segment_ids")
VOCABULARY = (
    "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "##b", "b", "é", "+", "¿", "中", "c\u00a0d", "É"]) + "\n"
)
WORDS = "<PAD> 0\n<START> 1\n<UNKNOWN> 2\na 3\nit's 4\nB 5\n"
PATTERN = r"[^\w\']+"


def model(
    inputs: tuple[str, ...] = BERT, *, labels: bool = True, pattern: str = "", vocabulary: str = VOCABULARY
) -> bytes:
    """Returns a model whose output is the ids, as float32."""
    builder = ModelBuilder()
    tensors = [builder.tensor(f"serving_{name}:0", (1, LENGTH), np.int32) for name in inputs]
    output = builder.tensor("out", (1, LENGTH), np.float32)
    builder.operator("CAST", tensors[:1], [output], schema.CastOptionsT(outDataType=schema.TensorType.FLOAT32))
    described = [Described(name=name) for name in inputs]
    found = [labels_in() if labels else Described()]
    buffer = metadata_buffer(described, found, tokenizer=Tokenizer("vocab.txt", pattern))
    files: dict[str, str | bytes] = {"vocab.txt": vocabulary}
    if labels:
        files["labels.txt"] = "\n".join(f"class {index}" for index in range(LENGTH))
    return with_metadata(builder.build(tensors, [output]), buffer, files)


def read(root: Path, data: bytes) -> tuple[Any, ModelMetadata]:
    file = root / "x.tflite"
    file.write_bytes(data)
    assert is_text_model(file)
    tokenizer, metadata = read_tflite_texts(file)
    return tokenizers.Tokenizer.from_str(tokenizer.decode()) if tokenizer else None, metadata


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("a+B É é ¿ab", [2, 4, 8, 6, 12, 7, 9, 4, 5, 3]),  # É is not lowercased, because it is not ASCII
        ("A it's B x", [2, 4, 1, 1, 1, 6, 1, 3]),
        ("c\u00a0d 中文 a中b", [2, 11, 10, 1, 4, 10, 6, 3]),  # a no-break space does not separate words
    ],
)
def test_the_tokenizer_of_bert_is_that_of_the_task_library(tmp_path: Path, text: str, ids: list[int]) -> None:
    tokenizer, metadata = read(tmp_path, model())
    assert tokenizer.encode(text).ids == ids
    assert (metadata.task, metadata.activation) == (Task.CLASSIFY, Activation.NONE)
    assert metadata.text.inputs == {
        "serving_ids:0": TokenInput.IDS,
        "serving_mask:0": TokenInput.MASK,
        "serving_segment_ids:0": TokenInput.TYPES,
    }
    assert (metadata.text.max_length, metadata.text.pad_id) == (LENGTH, 0)


@pytest.mark.parametrize(
    ("text", "ids"),
    [("a+B É é ¿ab", [1, 3, 5, 2]), ("A it's B x", [1, 2, 4, 5, 2]), ("c\u00a0d 中文 a中b", [1, 2, 2, 3, 2])],
)
def test_words_are_separated_as_the_task_library_does(tmp_path: Path, text: str, ids: list[int]) -> None:
    tokenizer, metadata = read(tmp_path, model(("input_text",), pattern=PATTERN, vocabulary=WORDS))
    assert tokenizer.encode(text).ids == ids
    assert metadata.text.inputs == {"serving_input_text:0": TokenInput.IDS}


def test_a_model_without_labels_embeds(tmp_path: Path) -> None:
    assert read(tmp_path, model(labels=False))[1].task is Task.EMBED


def test_inputs_that_are_not_those_of_bert_have_no_tokenizer(tmp_path: Path) -> None:
    tokenizer, metadata = read(tmp_path, model(("ids", "mask", "picture")))
    assert (tokenizer, metadata) == (None, ModelMetadata())


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (model(vocabulary="a\nb"), InvalidInput, r"does not contain \[CLS\]"),
        (model(("x",), pattern=PATTERN, vocabulary="a b c"), InvalidInput, "not a word and its id"),
        (model(("x",), pattern=PATTERN, vocabulary="a 1"), InvalidInput, "does not contain <PAD>"),
        (model(("x",), pattern="(a+)+$", vocabulary=WORDS), Unsupported, "not one class of characters"),
        (model(("x",), pattern=r"[\p{L}]+", vocabulary=WORDS), Unsupported, "not one class of characters"),
    ],
)
def test_a_tokenizer_that_cannot_be_converted_is_refused(
    tmp_path: Path, data: bytes, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        read(tmp_path, data)


def test_the_model_is_read_without_a_tokenizer_that_cannot_be_converted(tmp_path: Path) -> None:
    (tmp_path / "x.tflite").write_bytes(model(vocabulary="a"))
    found = read_published(SingleFile(tmp_path / "x.tflite", "model.tflite"))
    assert found.tokenizer == b""
    assert "does not contain [CLS]" in found.notice


@pytest.mark.parametrize("data", [b"", b"\0\0\0\0TFL3", b"\0\0\0\0TFL3PK\5\6"])
def test_another_file_is_not_a_model_of_texts(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x").write_bytes(data)
    assert not is_text_model(tmp_path / "x")
