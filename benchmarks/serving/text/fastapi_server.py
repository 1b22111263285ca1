"""A FastAPI application that computes embeddings with ONNX Runtime or fastembed, in batches of waiting requests:

python -m benchmarks.serving.text.fastapi_server PORT onnxruntime|fastembed FOLDER BATCH

It runs in a peer's environment.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from fastapi import FastAPI, Request

Embed = Callable[[Sequence[str]], Any]


def onnxruntime(folder: Path) -> Embed:
    from onnxruntime import InferenceSession, SessionOptions
    from tokenizers import Tokenizer  # type: ignore[import-not-found,unused-ignore]

    options = SessionOptions()
    options.intra_op_num_threads = 1
    session = InferenceSession(str(folder / "onnx/model_quantized.onnx"), options, providers=["CPUExecutionProvider"])
    names = {each.name for each in session.get_inputs()}
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(256)
    tokenizer.enable_padding()

    def embed(texts: Sequence[str]) -> Any:
        encoded = tokenizer.encode_batch(list(texts))
        columns = {
            "input_ids": [each.ids for each in encoded],
            "attention_mask": [each.attention_mask for each in encoded],
            "token_type_ids": [each.type_ids for each in encoded],
        }
        feeds = {name: np.array(rows, np.int64) for name, rows in columns.items() if name in names}
        tokens = session.run(None, feeds)[0]
        mask = np.array(columns["attention_mask"], np.float32)[..., None]
        pooled = (tokens * mask).sum(1) / mask.sum(1)
        return pooled / np.linalg.norm(pooled, axis=1, keepdims=True)

    return embed


def fastembed(folder: Path) -> Embed:
    from fastembed import TextEmbedding  # type: ignore[import-not-found,unused-ignore]
    from fastembed.common.model_description import (  # type: ignore[import-not-found,unused-ignore]
        ModelSource,
        PoolingType,
    )

    file = "onnx/model_quantized.onnx"
    TextEmbedding.add_custom_model(
        "local/minilm", PoolingType.MEAN, True, ModelSource(url="http://localhost"), 384, file
    )
    model = TextEmbedding("local/minilm", specific_model_path=str(folder), threads=1)
    return lambda texts: np.array(list(model.embed(list(texts), batch_size=len(texts))))


def main(port: str, engine: str, folder: str, largest_batch: str) -> None:
    embed = {"onnxruntime": onnxruntime, "fastembed": fastembed}[engine](Path(folder))
    waiting: asyncio.Queue[tuple[str, asyncio.Future[list[float]]]] = asyncio.Queue()
    app = FastAPI()

    async def work() -> None:
        while True:
            batch = [await waiting.get()]
            while len(batch) < int(largest_batch) and not waiting.empty():
                batch.append(waiting.get_nowait())
            vectors = await asyncio.to_thread(embed, [text for text, _ in batch])
            for (_, future), vector in zip(batch, vectors, strict=True):
                future.set_result(vector.tolist())

    @app.on_event("startup")
    async def start() -> None:
        app.state.work = asyncio.create_task(work())

    async def answer(request: Request) -> Any:
        future: asyncio.Future[list[float]] = asyncio.get_running_loop().create_future()
        await waiting.put(((await request.json())["input"], future))
        return {"data": [{"index": 0, "embedding": await future}]}

    app.post("/v1/embeddings")(answer)
    uvicorn.run(app, host="127.0.0.1", port=int(port), loop="uvloop", http="httptools", access_log=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
