"""Tokenizes texts with transformers' AutoTokenizer.

Runs in the environment `transformers` of `benchmarks.setup_peers`. It imports nothing of this project.

python -m tests.conformance.tokenization.peer FOLDER    # requests on standard input, responses on standard output
"""

from __future__ import annotations

import pickle
import sys
from array import array
from typing import BinaryIO


def main(folder: str) -> None:
    from transformers import AutoTokenizer  # type: ignore[import-not-found]

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    requests, responses = sys.stdin.buffer, sys.stdout.buffer
    while (request := _load(requests)) is not None:
        batch, max_length = request
        encoded = tokenizer(batch, truncation=True, max_length=max_length, return_token_type_ids=True)
        rows = [
            (array("q", ids).tobytes(), bytes(types), bytes(mask))
            for ids, types, mask in zip(
                encoded["input_ids"], encoded["token_type_ids"], encoded["attention_mask"], strict=True
            )
        ]
        pickle.dump(rows, responses)
        responses.flush()


def _load(stream: BinaryIO) -> tuple[list[str], int] | None:
    try:
        found: tuple[list[str], int] = pickle.load(stream)
    except EOFError:
        return None
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
