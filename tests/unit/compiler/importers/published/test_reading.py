"""Tests of a published model as a whole."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from service.compiler.importers.published.files import Folder
from service.compiler.importers.published.reading import (
    is_published,
    lacks_pooling,
    name_of,
    read_published,
    shapes_for_pictures,
    shapes_for_texts,
)
from service.compiler.importers.uploads import upload_of
from service.core.errors import Unsupported
from service.core.models.task import Task
from service.core.models.text import Pooling
from tests.support.onnx_builder import OnnxBuilder
from tests.support.published_model import BERT, TOKENIZER, encoder, safetensors, sentence_transformer, write


def test_a_folder_of_sentence_transformers_is_read(tmp_path: Path) -> None:
    files = {
        "onnx/model_quantized.onnx": encoder({"last_hidden_state": 3}),
        "README.md": "",
        "pytorch_model.bin": b"\x80",
    }
    write(tmp_path, sentence_transformer() | files)
    found = read_published(Folder(tmp_path))
    assert found.file == tmp_path / "onnx" / "model_quantized.onnx"
    assert (found.metadata.task, found.metadata.text.pooling) == (Task.EMBED, (Pooling.MEAN,))
    assert json.loads(found.tokenizer) == TOKENIZER
    assert found.ignored == ["README.md", "pytorch_model.bin"]
    assert set(found.sources) == set(sentence_transformer())
    assert not lacks_pooling(found, found.metadata)


@pytest.mark.parametrize("outputs", [{"token_embeddings": 3, "sentence_embedding": 2}, {"sentence_embedding": 2}])
def test_a_file_that_pools_itself_needs_no_pooling(tmp_path: Path, outputs: dict[str, int]) -> None:
    write(tmp_path, sentence_transformer(pooling_mode_max_tokens=True) | {"model.onnx": encoder(outputs)})
    found = read_published(Folder(tmp_path))
    assert found.metadata.text.pooling == ()
    assert found.metadata.text.output == ("sentence_embedding" if len(outputs) == 2 else "")
    assert not lacks_pooling(found, found.metadata)


def test_a_folder_without_pooling_is_recognized(tmp_path: Path) -> None:
    model = encoder({"last_hidden_state": 3, "pooler_output": 2})
    write(tmp_path, {"config.json": BERT, "tokenizer.json": TOKENIZER, "model.onnx": model})
    found = read_published(Folder(tmp_path))
    assert found.metadata.task is Task.EMBED
    assert lacks_pooling(found, found.metadata)


def test_the_folder_gives_the_name(tmp_path: Path) -> None:
    assert name_of(tmp_path / "bge-small-en-v1.5") == "bge-small-en-v1.5"
    assert name_of(tmp_path / "Deep Model") == "deep-model"


def test_a_folder_in_the_cache_of_hugging_face_gives_the_model_s_name(tmp_path: Path) -> None:
    cached = tmp_path / "models--BAAI--bge-small-en-v1.5" / "snapshots" / "5c38ec7c405ec4b44b94cc5a9bb96e735b38267a"
    assert name_of(cached) == "bge-small-en-v1.5"


def test_a_text_model_is_built_for_every_number_of_tokens_up_to_its_maximum(tmp_path: Path) -> None:
    model = Path(__file__).parents[4] / "fixtures" / "lengths" / "bert.dynamic.onnx"
    published = read_published(write(tmp_path, {"model.onnx": model.read_bytes(), "tokenizer.json": TOKENIZER}))
    for given, longest in ((100, 100), (9, 9), (None, 512), (4096, 512)):
        assert shapes_for_texts(published, given) == f"input_ids=1x..{longest};attention_mask=1x..{longest}"
    assert shapes_for_texts(replace(published, tokenizer=b""), 100) == ""


def test_a_damaged_model_is_left_to_the_compiler(tmp_path: Path) -> None:
    write(tmp_path, {"model.onnx": b"\xff\xff", "config.json": {}})
    assert read_published(Folder(tmp_path)).metadata.task is None


def test_an_artifact_is_not_a_published_model(tmp_path: Path) -> None:
    write(tmp_path, {"a/config.json": {}, "b/oci-layout": {}, "c": ""})
    assert [is_published(tmp_path / name) for name in "abc"] == [True, False, False]


def test_dense_layers_are_added_to_the_file(tmp_path: Path) -> None:
    model = OnnxBuilder()
    ids = model.input("input_ids", "int64", ("batch", "tokens"))
    model.input("attention_mask", "int64", ("batch", "tokens"))
    hidden = model.node("Gather", [model.constant(np.ones((9, 8)), "float32"), ids])
    model.output(hidden, "float32", ("batch", "tokens", 8))
    files = sentence_transformer()
    files["modules.json"].insert(2, {"path": "2_Dense", "type": "sentence_transformers.models.Dense"})
    files["2_Dense/config.json"] = {"bias": False, "activation_function": "torch.nn.modules.activation.Tanh"}
    files["2_Dense/model.safetensors"] = safetensors({"linear.weight": np.eye(2, 8, dtype=np.float32)})
    write(tmp_path, files | {"model.onnx": model.build()})
    found = read_published(Folder(tmp_path))
    assert (found.metadata.text.output, found.metadata.text.pooling) == ("sentence_embedding", ())
    assert not lacks_pooling(found, found.metadata)
    assert "2_Dense/model.safetensors" in found.sources
    with upload_of(found.file, addition=found.addition) as upload:
        session = onnxruntime.InferenceSession(upload.read_bytes(), providers=["CPUExecutionProvider"])
    inputs = {"input_ids": np.zeros((1, 3), np.int64), "attention_mask": np.ones((1, 3), np.int64)}
    assert np.asarray(session.run(["sentence_embedding"], inputs)[0]).tolist() == [[np.tanh(np.float32(1))] * 2]


def test_dense_layers_after_a_file_without_a_mask_are_refused(tmp_path: Path) -> None:
    files = sentence_transformer()
    files["modules.json"].append({"path": "2_Dense", "type": "sentence_transformers.models.Dense"})
    files["2_Dense/config.json"] = {"bias": False, "activation_function": "torch.nn.modules.activation.Tanh"}
    files["2_Dense/model.safetensors"] = safetensors({"linear.weight": np.eye(2, 8, dtype=np.float32)})
    write(tmp_path, files | {"model.onnx": encoder({"y": 3})})
    with pytest.raises(Unsupported, match="no input attention_mask"):
        read_published(Folder(tmp_path))


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (("b", "c", "h", "w"), "x=1,3,224,200"),
        (("b", 1, "h", "w"), "x=1,1,224,200"),
        ((1, "h", "w", 3), "x=1,224,200,3"),
        (("b", 3, 224, 200), ""),
        (("b", "n"), ""),
    ],
)
def test_a_model_of_pictures_is_built_for_the_size_of_its_preprocessing(
    tmp_path: Path, shape: tuple[int | str, ...], expected: str
) -> None:
    model = OnnxBuilder()
    model.output(model.node("Identity", [model.input("x", "float32", shape)]), "float32")
    preprocessor = {"do_resize": True, "size": {"height": 224, "width": 200}}
    folder = write(tmp_path, {"model.onnx": model.build(), "preprocessor_config.json": preprocessor})
    assert shapes_for_pictures(read_published(folder)) == expected
