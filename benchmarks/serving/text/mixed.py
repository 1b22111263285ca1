"""Texts, pictures and tensors at one server: the rate and the latency of each alone, and of all at the same time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence

from benchmarks.harness.home import CHECKOUT
from benchmarks.serving.text.load import Outcome, Request, embedding_requests, request_of, run, texts

SOURCE = CHECKOUT / "examples" / "digits_int8.tflite"
DIGITS = "digits"
COLUMNS = (
    "requests",
    "connections",
    "requests/s",
    "p50 ms",
    "p99 ms",
    "failed",
    "beside the others",
    "p50 ms",
    "p99 ms",
)
_CONNECTIONS, _SAMPLES = 4, 512


def rows(port: int, seconds: float) -> Iterator[list[str]]:
    kinds = _kinds()
    alone = {name: asyncio.run(run(port, _CONNECTIONS, seconds, requests)) for name, requests in kinds.items()}
    beside = dict(zip(kinds, asyncio.run(_together(port, seconds, list(kinds.values()))), strict=True))
    for name in kinds:
        failures = alone[name].failures + beside[name].failures
        yield [name, str(_CONNECTIONS), *_cells(alone[name]), str(failures), *_cells(beside[name])]


def _cells(found: Outcome) -> list[str]:
    return [f"{found.rate:.1f}", f"{found.percentile_ms(0.5):.2f}", f"{found.percentile_ms(0.99):.2f}"]


async def _together(port: int, seconds: float, kinds: Sequence[Sequence[Request]]) -> list[Outcome]:
    return list(await asyncio.gather(*(run(port, _CONNECTIONS, seconds, requests) for requests in kinds)))


def _kinds() -> Mapping[str, Sequence[Request]]:
    pictures = sorted((CHECKOUT / "examples" / "digits").glob("*.png"))
    path, answer = f"/v2/models/{DIGITS}/infer", b'"outputs"'
    entry = {"name": "image", "datatype": "INT8", "shape": [1, 16, 16, 1], "data": [0] * 256}
    return {
        "texts": embedding_requests(texts(0, _SAMPLES)),
        "pictures": [request_of(path, each.read_bytes(), answer, "image/png") for each in pictures],
        "tensors": [request_of(path, json.dumps({"inputs": [entry]}).encode(), answer)],
    }
