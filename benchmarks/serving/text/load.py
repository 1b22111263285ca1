"""Generates requests for embeddings: a closed loop over several connections."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

MODEL = "minilm"
# MS MARCO (Bajaj et al., arXiv 1611.09268): a query has about 6 words on average, and a passage about 56. Half of the
# texts here are as long as queries, and half as passages, with the long tail of a log-normal distribution (sigma 0.7).
_MEANS, _SIGMA, _MOST = (6, 56), 0.7, 512
_WORDS = ("the", "of", "and", "to", "in", "is", "that", "for", "it", "as", "was", "with", "be", "by", "on", "not", "he")


@dataclass(frozen=True)
class Outcome:
    """The result of one load.

    Attributes:
        seconds_by_request: the time of each request, in ascending order.
        words: the number of words in all texts.
        failures: the number of responses that were no embedding.
    """

    elapsed_s: float
    seconds_by_request: Sequence[float]
    words: int
    failures: int

    @property
    def rate(self) -> float:
        return len(self.seconds_by_request) / self.elapsed_s

    def percentile_ms(self, share: float) -> float:
        found = self.seconds_by_request
        return 1e3 * found[min(len(found) - 1, int(share * len(found)))] if found else float("nan")


def texts(seed: int, count: int) -> list[str]:
    """Returns texts of 1 to 512 words. Each of these words is one token of BERT's vocabulary."""
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        mean = rng.choice(_MEANS)
        words = max(1, min(_MOST - 2, round(mean * rng.lognormvariate(-(_SIGMA**2) / 2, _SIGMA))))
        found.append(" ".join(rng.choices(_WORDS, k=words)))
    return found


async def run(port: int, connections: int, seconds: float, samples: Sequence[str]) -> Outcome:
    """Sends requests for `seconds`, each connection one at a time."""
    ends_s = time.monotonic() + seconds
    times: list[float] = []
    counts = {"words": 0, "failures": 0}

    async def loop(first: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        number = first
        while time.monotonic() < ends_s:
            text = samples[number % len(samples)]
            number += connections
            body = json.dumps({"model": MODEL, "input": text}).encode()
            head = "POST /v1/embeddings HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            began_s = time.monotonic()
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            status, answer = await _response(reader)
            times.append(time.monotonic() - began_s)
            counts["words"] += text.count(" ") + 1
            counts["failures"] += status != 200 or b'"embedding"' not in answer
        writer.close()

    began_s = time.monotonic()
    await asyncio.gather(*(loop(each) for each in range(connections)))
    return Outcome(time.monotonic() - began_s, sorted(times), counts["words"], counts["failures"])


async def _response(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    status = int(head.split(" ", 2)[1])
    if "transfer-encoding: chunked" in head:
        body = b""
        while size := int((await reader.readline()).split(b";")[0], 16):
            body += await reader.readexactly(size)
            await reader.readexactly(2)
        await reader.readexactly(2)
        return status, body
    (length,) = (line.partition(":")[2] for line in head.split("\r\n") if line.startswith("content-length"))
    return status, await reader.readexactly(int(length))
