"""The answer to a predict request: JSON, followed by the tensors that were asked for as binary data."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.types import Receive, Scope, Send

from service.api.oip.coding import WORTH_BYTES, compressed
from service.api.oip.outputs import output_of
from service.api.oip.request import InferRequest
from service.api.oip.tensors import Array
from service.core.errors import Unsupported
from service.core.signature import TensorSpec
from service.workers.inference import Served

_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


@dataclass(frozen=True)
class Answer:
    """A response of one piece, sent without the help of a framework."""

    body: bytes
    headers: list[tuple[bytes, bytes]]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.headers})
        await send({"type": "http.response.body", "body": self.body})


async def encoded(answer: Answer, coding: str) -> Answer:
    """`answer` compressed, if `coding` is one and it pays. The length of its JSON stays what it is inflated."""
    if not coding or len(answer.body) < WORTH_BYTES:
        return answer
    body = await asyncio.to_thread(compressed, answer.body, coding)
    headers = [header for header in answer.headers if header[0] != b"content-length"]
    about = (
        (b"content-encoding", coding.encode()),
        (b"vary", b"accept-encoding"),
        (b"content-length", b"%d" % len(body)),
    )
    return Answer(body, [*headers, *about])


def render(served: Served, request: InferRequest, arrays: Sequence[Array]) -> Answer:
    """The answer with `arrays`, all the model's outputs, in the form that `request` asks for.

    Raises:
        Unsupported: an output holds NaN or infinity, and was not asked for as binary data; or its best are wanted.
    """
    entries: list[dict[str, Any]] = []
    blobs: list[bytes] = []
    for wanted in request.outputs:
        output = output_of(served, wanted, arrays)
        entry: dict[str, Any] = {"name": output.name, "datatype": output.datatype, "shape": output.shape}
        if wanted.binary:
            blobs.append(output.packed())
            entry["parameters"] = {"binary_data_size": len(blobs[-1])}
        else:
            entry["data"] = output.elements()
        entries.append(entry)
    identity = served.identity
    document: dict[str, Any] = {"model_name": identity.model, "model_version": str(identity.version)}
    if request.id is not None:
        document["id"] = request.id
    document["outputs"] = entries
    return _answer(_to_json(document, served.signature.outputs), blobs, any(each.binary for each in request.outputs))


def _to_json(document: dict[str, Any], specs: Sequence[TensorSpec]) -> bytes:
    try:
        return _encode(document).encode()
    except ValueError as error:
        raise Unsupported(
            "an output holds NaN or infinity, which JSON cannot express", hint="ask for binary data: binary_data_output"
        ) from error


def _answer(document: bytes, blobs: list[bytes], binary: bool) -> Answer:
    if not binary:
        return Answer(document, [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(document))])
    body = b"".join([document, *blobs])
    return Answer(
        body,
        [
            (b"content-type", b"application/octet-stream"),
            (b"inference-header-content-length", b"%d" % len(document)),
            (b"content-length", b"%d" % len(body)),
        ],
    )
