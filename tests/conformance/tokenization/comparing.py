"""Tokenizes texts as the preprocessing process does, and compares the tensors with AutoTokenizer's."""

from __future__ import annotations

import os
import pickle
import struct
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.harness.home import CHECKOUT
from service.compiler.importers.published.files import Folder, parse_json
from service.compiler.importers.published.modules import Steps
from service.compiler.importers.published.texts import read_text_processing
from service.compiler.importers.published.tokenizers import read_tokenizer
from service.core.models.arrays import Array
from service.core.models.text import Side, TextProcessing
from service.workers.preprocess import texts
from service.workers.preprocess.tokenizer_files import load_tokenizer
from tests.conformance.tokenization.texts import texts as random_texts

MAX_LENGTH = 512
BATCH = 250
SHORT = 16  # to which every tenth batch is truncated
_NAMES = ("input_ids", "attention_mask", "token_type_ids")
Row = tuple[bytes, bytes, bytes]  # ids (int64), types and mask (one byte each) of a text


@dataclass(frozen=True)
class Difference:
    text: str
    ours: Sequence[int]
    theirs: Sequence[int]

    def __str__(self) -> str:
        at = next((i for i, pair in enumerate(zip(self.ours, self.theirs, strict=False)) if pair[0] != pair[1]), -1)
        return (
            f"{self.text[:200]!r} ({len(self.text)} characters): {len(self.ours)} and {len(self.theirs)} tokens, "
            f"first difference at {at}: {list(self.ours[:20])} and {list(self.theirs[:20])}"
        )


class Local:
    """The tokenizer of a folder, as `octet push` reads it and the preprocessing process uses it."""

    def __init__(self, folder: Path) -> None:
        files = Folder(folder)
        data, _ = read_tokenizer(files)
        found = read_text_processing(files, parse_json(data, "tokenizer.json"), Steps())
        self.model_type: str = parse_json(data, "tokenizer.json")["model"].get("type", "BPE")
        self.processing: TextProcessing = replace(found, max_length=None, strips=None)
        self._tokenizer = load_tokenizer(data)

    def rows(self, batch: Sequence[str], max_length: int) -> list[Row]:
        """Returns the tokens of each text without padding. Fails if the padding is not that of the model."""
        inputs = [texts.TokenSpec(name, "INT64", ((1, max_length),)) for name in _NAMES]
        message = b"".join(struct.pack("<I", len(each)) + each for each in map(str.encode, batch))
        split = texts.split_texts(message)
        lengths = texts.lengths_of(self.processing, inputs, len(split), len(batch))
        encoded = texts.encode(self._tokenizer, split, self.processing, texts.most_tokens(lengths, self.processing))
        found = texts.arrange(encoded, self.processing, inputs, lengths, pads=True)
        ids, mask, types = found.tensors
        columns = zip(ids, mask, types, strict=True)
        return [self._row(each, length) for each, length in zip(columns, found.tokens, strict=True)]

    def _row(self, columns: tuple[Array, Array, Array], length: int) -> Row:
        left = self.processing.padding_side is Side.LEFT
        ids, mask, types = ((each[len(each) - length :] if left else each[:length]) for each in columns)
        padding = columns[0][: len(columns[0]) - length] if left else columns[0][length:]
        assert (padding == (self.processing.pad_id or 0)).all()
        assert columns[1].sum() == mask.sum()
        return ids.tobytes(), types.astype(np.uint8).tobytes(), mask.astype(np.uint8).tobytes()


@contextmanager
def peer(python: Path, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Runs AutoTokenizer on a folder, in its own environment."""
    command = [str(python), "-m", "tests.conformance.tokenization.peer", str(folder)]
    offline = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONPATH": str(CHECKOUT)}
    process = subprocess.Popen(
        command, cwd=CHECKOUT, env=os.environ | offline, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def ask(process: subprocess.Popen[bytes], batch: Sequence[str], max_length: int) -> list[Row]:
    """Returns AutoTokenizer's tokens of each text."""
    assert process.stdin
    assert process.stdout
    pickle.dump((list(batch), max_length), process.stdin)
    process.stdin.flush()
    found: list[Row] = pickle.load(process.stdout)
    return found


def differences(local: Local, python: Path, folder: Path, seed: int, count: int) -> Iterator[Difference]:
    """Yields the texts, of `count` random ones, whose tokens differ from AutoTokenizer's."""
    with peer(python, folder) as process:
        for number, first in enumerate(range(0, count, BATCH)):
            batch = list(random_texts(seed, first, min(BATCH, count - first)))
            max_length = SHORT if number % 10 == 9 else MAX_LENGTH
            yield from _unequal(batch, local.rows(batch, max_length), ask(process, batch, max_length))


def _unequal(batch: Sequence[str], ours: Sequence[Row], theirs: Sequence[Row]) -> Iterator[Difference]:
    for text, one, other in zip(batch, ours, theirs, strict=True):
        if one != other:
            yield Difference(text, np.frombuffer(one[0], np.int64).tolist(), np.frombuffer(other[0], np.int64).tolist())
