"""Small models with which the commands of the pages run: folders of text models as they are published, a model of
sounds, and a model of pictures.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.onnx_builder import OnnxBuilder
from tests.support.published_model import write
from tests.support.sounds import wav
from tests.support.tokenizers import WORDS, wordpiece

CLASSES = 8
_WIDTH = 8
_WEIGHTS = np.arange(-32, 32, dtype=np.int8).reshape(_WIDTH, CLASSES)
_SOUND_SAMPLES = 64
_POOLING = {"word_embedding_dimension": _WIDTH, "pooling_mode_mean_tokens": True}
_MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
]


def provide_models(folder: Path) -> None:
    """Creates the models in `folder`."""
    embedding = {"modules.json": _MODULES, "1_Pooling/config.json": _POOLING}
    _write_text_model(folder / "minilm", "BertModel", "last_hidden_state", _WIDTH, per_token=True, **embedding)
    _write_text_model(folder / "entities", "BertForTokenClassification", "logits", 3, per_token=True)
    _write_text_model(folder / "sentiment", "BertForSequenceClassification", "logits", 2)
    _write_text_model(folder / "reranker", "BertForSequenceClassification", "logits", 1)
    (folder / "yamnet.onnx").write_bytes(_model_of_sounds())
    (folder / "sound.wav").write_bytes(wav(np.sin(np.arange(100) / 3)))
    (folder / "resnet18.onnx").write_bytes(_model_of_pictures())
    (folder / "imagenet.txt").write_text("".join(f"class {index}\n" for index in range(CLASSES)))


def _write_text_model(
    folder: Path, architecture: str, output: str, width: int, *, per_token: bool = False, **files: Any
) -> None:
    """Writes the folder of an encoder with `width` values for a text, or for each token."""
    labels: Mapping[str, Any] = {"id2label": {str(index): f"LABEL_{index}" for index in range(width)}}
    config = {"architectures": [architecture], "model_type": "bert", **({} if architecture == "BertModel" else labels)}
    model = OnnxBuilder()
    table = model.constant(np.linspace(-3, 3, len(WORDS) * _WIDTH).reshape(len(WORDS), _WIDTH), "float32")
    x = model.node("Gather", [table, model.input("input_ids", "int64", ["batch", "tokens"])])
    if not per_token:
        x = model.node("ReduceMean", [x, model.constant([1], "int64")], keepdims=0)
    model.node("Identity", [_dense(model, x, _WEIGHTS[:, :width])], [output])
    model.output(output, "float32", ["batch", "tokens", width] if per_token else ["batch", width])
    tokenizer = wordpiece().to_str()
    write(
        folder,
        {"onnx/model_quantized.onnx": model.build(), "config.json": config, "tokenizer.json": tokenizer, **files},
    )


def _model_of_sounds() -> bytes:
    weights = np.resize(_WEIGHTS, (_SOUND_SAMPLES, CLASSES))
    model = OnnxBuilder()
    model.output(_dense(model, model.input("samples", "float32", [1, _SOUND_SAMPLES]), weights), "float32")
    return model.build()


def _model_of_pictures() -> bytes:
    model = OnnxBuilder()
    size = 3 * _WIDTH * _WIDTH
    flat = model.node(
        "Reshape", [model.input("x", "float32", [1, 3, _WIDTH, _WIDTH]), model.constant([1, size], "int64")]
    )
    model.output(_dense(model, flat, np.resize(_WEIGHTS, (size, CLASSES))), "float32")
    return model.build()


def _dense(model: OnnxBuilder, x: str, weights: np.ndarray[Any, Any]) -> str:
    x = model.dequantized(model.quantized(x, 0.05, 100, "uint8"), 0.05, 100, "uint8")
    y = model.node("MatMul", [x, model.dequantized(model.constant(weights), 0.01, 0, "int8")])
    return model.dequantized(model.quantized(y, 0.1, 100, "uint8"), 0.1, 100, "uint8")
