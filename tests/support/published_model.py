"""Writes folders of models as people publish them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from service.compiler.importers.published.files import Folder
from tests.support.onnx_builder import OnnxBuilder, fixed, message, number

TOKENIZER: Mapping[str, Any] = {
    "version": "1.0",
    "added_tokens": [{"id": 3, "content": "[PAD]", "special": True}],
    "model": {"type": "WordPiece", "vocab": {"[UNK]": 0, "a": 1, "b": 2, "[PAD]": 3}},
}
BERT: Mapping[str, Any] = {"architectures": ["BertModel"], "model_type": "bert", "max_position_embeddings": 512}


def write(root: Path, files: Mapping[str, Any]) -> Folder:
    """Writes files: bytes and texts as they are, other values as JSON. Returns the folder."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = content if isinstance(content, bytes | str) else json.dumps(content)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
    return Folder(root)


def encoder(outputs: Mapping[str, int]) -> bytes:
    """Returns an ONNX file with an input of token ids and these outputs, by name with their number of dimensions."""
    model = OnnxBuilder()
    x = model.input("input_ids", "int64", ("batch", "tokens"))
    for name, rank in outputs.items():
        model.node("Identity", [x], [name])
        model.output(name, "float32", ("batch", "tokens", 8)[:rank])
    return model.build()


def safetensors(tensors: Mapping[str, np.ndarray[Any, Any]]) -> bytes:
    """Returns a safetensors file of float16, float32 or float64 tensors."""
    header: dict[str, Any] = {}
    data = b""
    for name, values in tensors.items():
        dtype = f"F{8 * values.itemsize}"
        header[name] = {"dtype": dtype, "shape": values.shape, "data_offsets": [len(data), len(data) + values.nbytes]}
        data += values.tobytes()
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def sentencepiece(
    pieces: Sequence[tuple[str, float, int]], unk_id: int, model_type: int = 1, *, byte_fallback: bool = False
) -> bytes:
    """Returns a SentencePiece model of pieces with their scores and types (1 normal, 2 unknown, 3 control)."""
    encoded = b"".join(
        message(1, message(1, text) + fixed(2, score) + number(3, type_)) for text, score, type_ in pieces
    )
    return encoded + message(2, number(3, model_type) + number(35, int(byte_fallback)) + number(40, unk_id))


def sentence_transformer(**changes: Any) -> dict[str, Any]:
    """Returns the files of a model of sentence-transformers, with `changes` to `1_Pooling/config.json`."""
    modules = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    return {
        "config.json": BERT,
        "tokenizer.json": TOKENIZER,
        "tokenizer_config.json": {"model_max_length": 512, "pad_token": "[PAD]", "padding_side": "right"},
        "sentence_bert_config.json": {"max_seq_length": 256, "do_lower_case": False},
        "config_sentence_transformers.json": {"prompts": {"query": "q: ", "document": ""}, "default_prompt_name": None},
        "modules.json": [
            {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for index, (path, kind) in enumerate(modules)
        ],
        "1_Pooling/config.json": {
            "word_embedding_dimension": 8,
            "pooling_mode_cls_token": False,
            "pooling_mode_mean_tokens": True,
            "pooling_mode_max_tokens": False,
            **changes,
        },
    }
