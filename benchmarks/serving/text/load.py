"""Generates requests: a closed loop over several connections."""

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


@dataclass(frozen=True)
class Request:
    """A request as it is sent.

    Attributes:
        words: the number of words in its text.
        answer: what the response has to contain.
    """

    raw: bytes
    answer: bytes
    words: int = 0


def request_of(path: str, body: bytes, answer: bytes, media_type: str = "application/json", words: int = 0) -> Request:
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {media_type}\r\nContent-Length: {len(body)}"
    return Request(f"{head}\r\n\r\n".encode() + body, answer, words)


def embedding_requests(samples: Sequence[str]) -> list[Request]:
    """Returns a request for the embedding of each text."""
    return [
        request_of(
            "/v1/embeddings",
            json.dumps({"model": MODEL, "input": text}).encode(),
            b'"embedding"',
            words=text.count(" ") + 1,
        )
        for text in samples
    ]


async def run(port: int, connections: int, seconds: float, requests: Sequence[Request]) -> Outcome:
    """Sends the requests in turn for `seconds`, each connection one at a time."""
    ends_s = time.monotonic() + seconds
    times: list[float] = []
    counts = {"words": 0, "failures": 0}

    async def loop(first: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        number = first
        while time.monotonic() < ends_s:
            request = requests[number % len(requests)]
            number += connections
            began_s = time.monotonic()
            writer.write(request.raw)
            status, answer = await _response(reader)
            times.append(time.monotonic() - began_s)
            counts["words"] += request.words
            counts["failures"] += status != 200 or request.answer not in answer
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
