"""Published folders whose JSON files are damaged, and reading them in this process."""

from __future__ import annotations

import copy
import json
import random
import shutil
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from service.compiler.importers.published.files import Folder
from service.compiler.importers.published.reading import read_published
from service.core.errors import OctetError
from tests.fuzz.preprocess.tokenizers import ODD, nodes
from tests.support.published_model import TOKENIZER, encoder, write

_SLOWEST_S = 10.0
_FILES: Mapping[str, Any] = {
    "config.json": {
        "architectures": ["BertForSequenceClassification"],
        "model_type": "bert",
        "max_position_embeddings": 512,
        "id2label": {"0": "bad", "1": "good"},
        "label2id": {"bad": 0, "good": 1},
        "pad_token_id": 0,
    },
    "tokenizer.json": TOKENIZER,
    "tokenizer_config.json": {
        "model_max_length": 128,
        "padding_side": "right",
        "pad_token": {"content": "[PAD]", "special": True},
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": True,
    },
    "special_tokens_map.json": {"pad_token": "[PAD]", "cls_token": {"content": "[CLS]"}},
    "modules.json": [
        {"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"idx": 2, "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
    ],
    "1_Pooling/config.json": {"word_embedding_dimension": 4, "pooling_mode_mean_tokens": True, "include_prompt": True},
    "config_sentence_transformers.json": {"prompts": {"query": "query: "}, "default_prompt_name": "query"},
    "sentence_bert_config.json": {"max_seq_length": 64, "do_lower_case": False},
    "preprocessor_config.json": {
        "do_resize": True,
        "size": {"height": 8, "width": 8},
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "rescale_factor": 0.00392,
        "resample": 2,
    },
    "quantize_config.json": {"per_channel": True, "reduce_range": False},
    "vocab.txt": "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na",
}


def check(rng: random.Random, scratch: Path, add: Callable[[str, int, str, bytes], None], case: int) -> None:
    """Reads one damaged folder. Calls `add` if that fails with anything but an `OctetError`, or takes too long."""
    root = scratch / "folder"
    shutil.rmtree(root, ignore_errors=True)
    files = _damaged(rng)
    began_s = time.monotonic()
    try:
        write(root, {"onnx/model_quantized.onnx": encoder({"last_hidden_state": 3}), **files})
        read_published(Folder(root))
    except OctetError:
        pass
    except Exception:
        add("folders", case, traceback.format_exc()[-1500:], repr(files).encode())
    if time.monotonic() - began_s > _SLOWEST_S:
        add("folders", case, f"took {time.monotonic() - began_s:.1f} s", repr(files).encode())


def _damaged(rng: random.Random) -> dict[str, Any]:
    kept = {name: copy.deepcopy(each) for name, each in _FILES.items() if rng.random() < 0.8}
    for _ in range(rng.choice((1, 1, 2, 4))):
        if not kept:
            break
        name = rng.choice(list(kept))
        found = nodes(kept[name])
        match rng.randrange(6):
            case 0:
                kept[name] = rng.choice(ODD)
            case 1 if not isinstance(kept[name], bytes):
                text = json.dumps(kept[name])
                at = rng.randrange(len(text))
                kept[name] = (text[:at] + rng.choice(('"', "[" * 50_000, "\0", "")) + text[at + 1 :]).encode()
            case 2 if isinstance(kept[name], str):
                kept[name] = rng.choice(("", "\n" * 1_000, "a\n" * 1_000, "\ufeff[UNK]", "x" * 100_000))
            case _ if found:
                container, key = rng.choice(found)
                container[key] = rng.choice(ODD)
    return {name: each if isinstance(each, bytes) else _text(each) for name, each in kept.items()}


def _text(value: Any) -> str:
    return value if isinstance(value, str) and "\n" in value else json.dumps(value)
