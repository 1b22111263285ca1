"""The client's half of the Open Inference Protocol: the binary tensor extension, and the metadata of models.

A body is a JSON header followed by the tensors, little-endian and in order. The HTTP header
`Inference-Header-Content-Length` is the length of the JSON header.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from service.core.errors import InvalidInput
from service.core.models.arrays import Array
from service.core.models.metadata import ModelMetadata
from service.core.models.signature import DATATYPES, ModelSignature, TensorSpec, datatype_of

HEADER_LENGTH = "Inference-Header-Content-Length"


def read_input(path: Path) -> Array | bytes:
    """Returns the tensor in a .npy file, or the bytes of any other file, which the server decodes as a picture.

    Raises:
        InvalidInput: the .npy file is damaged or contains Python objects.
    """
    data = path.read_bytes()
    if not data.startswith(b"\x93NUMPY"):
        return data
    try:
        array: Array = np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise InvalidInput(f"{path}: {error}", hint="write it with numpy.save") from error
    return array


def encode_request(
    names: Sequence[str], inputs: Sequence[Array | bytes], parameters: Mapping[str, Any] | None = None
) -> tuple[bytes, int]:
    """Returns a request body that requests every output in binary, and the length of its JSON header in bytes.

    Args:
        parameters: further parameters of the request.
    """
    described, payloads = [], []
    for name, value in zip(names, inputs, strict=True):
        if isinstance(value, bytes):
            datatype, shape, payload = "BYTES", [1], struct.pack("<I", len(value)) + value
        else:
            datatype, shape, payload = _datatype(name, value), list(value.shape), _little_endian(value)
        sizes = {"binary_data_size": len(payload)}
        described.append({"name": name, "datatype": datatype, "shape": shape, "parameters": sizes})
        payloads.append(payload)
    members = {"binary_data_output": True, **(parameters or {})}
    header = json.dumps({"inputs": described, "parameters": members}).encode()
    return b"".join([header, *payloads]), len(header)


def decode_response(body: bytes, header_bytes: int) -> tuple[dict[str, Any], dict[str, Array]]:
    """Returns the response's JSON header, and its outputs by name in the server's order."""
    header: dict[str, Any] = json.loads(body[:header_bytes])
    outputs, offset = {}, header_bytes
    for output in header["outputs"]:
        size_bytes = output["parameters"]["binary_data_size"]
        flat = np.frombuffer(body[offset : offset + size_bytes], DATATYPES[output["datatype"]])
        outputs[output["name"]] = flat.reshape(output["shape"])
        offset += size_bytes
    return header, outputs


def describe(output: Mapping[str, Array]) -> list[dict[str, Any]]:
    """Returns outputs in the protocol's JSON form."""
    return [
        {
            "name": name,
            "datatype": datatype_of(value.dtype.name),
            "shape": list(value.shape),
            "data": value.ravel().tolist(),
        }
        for name, value in output.items()
    ]


def whole_sequence() -> dict[str, Any]:
    """Returns the parameters of a request that is a whole sequence; models without state ignore them."""
    return {"sequence_id": uuid4().hex, "sequence_start": True, "sequence_end": True}


def signature_of(described: Mapping[str, Any]) -> ModelSignature:
    """Returns the signature in a model's metadata."""
    return ModelSignature(tuple(map(spec_of, described["inputs"])), tuple(map(spec_of, described["outputs"])))


def metadata_of(described: Mapping[str, Any]) -> ModelMetadata:
    """Returns the labels, the task and the preprocessing in a model's metadata."""
    return ModelMetadata.from_json(described.get("parameters", {}))


def spec_of(described: Mapping[str, Any]) -> TensorSpec:
    """Returns the spec of a tensor in a model's metadata; its quantization is in the tensor's parameters."""
    return TensorSpec.from_json({**described, "quantization": described.get("parameters")})


def _datatype(name: str, value: Array) -> str:
    try:
        return datatype_of(value.dtype.name)
    except KeyError as error:
        hint = f"use one of: {', '.join(DATATYPES.values())}"
        raise InvalidInput(f"no model accepts data type {value.dtype.name}", tensor=name, hint=hint) from error


def _little_endian(value: Array) -> bytes:
    return value.astype(value.dtype.newbyteorder("<"), copy=False).tobytes()
