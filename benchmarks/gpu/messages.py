"""Encodes one prediction for both protocols, and decodes the outputs of the response."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from benchmarks.harness.wire import request_bytes
from service.core.models.arrays import Array
from service.core.models.signature import TensorSpec

_HEADER_LENGTH = "Inference-Header-Content-Length"
_LENGTH_DELIMITED = 2  # protobuf's wire type.
# Field numbers of the messages in service/api/grpc/inference.proto.
_MODEL, _INPUTS, _RAW_INPUTS, _NAME, _DATATYPE, _SHAPE, _RAW_OUTPUTS = 1, 5, 7, 1, 2, 3, 6


def http_request(port: int, specs: Sequence[TensorSpec], inputs: Sequence[Array]) -> bytes:
    """Returns an HTTP request including its head, with binary tensors in both directions."""
    described = [
        {"name": spec.name, "datatype": spec.datatype, "shape": list(value.shape)}
        | {"parameters": {"binary_data_size": value.nbytes}}
        for spec, value in zip(specs, inputs, strict=True)
    ]
    header = json.dumps({"inputs": described, "parameters": {"binary_data_output": True}}).encode()
    body = b"".join([header, *(value.tobytes() for value in inputs)])
    headers = {_HEADER_LENGTH: str(len(header)), "Content-Type": "application/octet-stream"}
    return request_bytes("127.0.0.1", port, "/v2/models/m/infer", headers, body)


def outputs_of_http(body: bytes) -> list[bytes]:
    """Returns the outputs in a response, which follow an object of JSON."""
    header, end = json.JSONDecoder().raw_decode(body.decode("latin-1"))
    found = []
    for output in header["outputs"]:
        size = output["parameters"]["binary_data_size"]
        found.append(body[end : end + size])
        end += size
    return found


def grpc_request(specs: Sequence[TensorSpec], inputs: Sequence[Array]) -> bytes:
    """Returns a `ModelInferRequest`."""
    parts = [_field(_MODEL, b"m")]
    for spec, value in zip(specs, inputs, strict=True):
        shape = b"".join(map(_varint, value.shape))
        tensor = _field(_NAME, spec.name.encode()) + _field(_DATATYPE, spec.datatype.encode()) + _field(_SHAPE, shape)
        parts.append(_field(_INPUTS, tensor))
    return b"".join([*parts, *(_field(_RAW_INPUTS, value.tobytes()) for value in inputs)])


def outputs_of_grpc(answer: bytes) -> list[bytes]:
    """Returns the outputs in a `ModelInferResponse`."""
    return [content for number, content in _fields(answer) if number == _RAW_OUTPUTS]


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _LENGTH_DELIMITED) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields number and content of each field. Raises ValueError for a wire type that a response does not use."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte, at = message[at], at + 1
            value, shift = value | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        if key & 7 != _LENGTH_DELIMITED:
            raise ValueError(f"a field of wire type {key & 7}")
        size = varint()
        yield key >> 3, message[at : at + size]
        at += size
