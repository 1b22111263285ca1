"""Prediction requests to Octet's servers, built before they are timed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.frameworks import random_input
from service.api.grpc.inference_pb2 import ModelInferRequest
from service.cli.client import Client
from service.cli.events import Event
from service.core.models.arrays import Array
from service.runtime.protocol import HEADER_LENGTH, encode_request

GRPC_INFER = "/inference.GRPCInferenceService/ModelInfer"


def random_inputs(model: Path) -> list[Array]:
    """Returns the inputs of a TFLite file that `frameworks` generates for it, over the whole range of their type."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(str(model), experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    details = enumerate(interpreter.get_input_details())
    return [random_input(tuple(detail["shape"]), np.dtype(detail["dtype"]), index) for index, detail in details]


def largest_difference(first: Sequence[Array], second: Sequence[Array]) -> int:
    return max(int(np.abs(a.astype(np.int64) - b.astype(np.int64)).max()) for a, b in zip(first, second, strict=True))


def infer_path(model: str) -> str:
    return f"/v2/models/{model}/infer"


def binary_request(
    names: Sequence[str], arrays: Sequence[Array], parameters: Mapping[str, Any] | None = None
) -> tuple[bytes, dict[str, str]]:
    """Returns the body and the headers of a request with binary tensors in both directions."""
    body, json_bytes = encode_request(list(names), list(arrays), dict(parameters) if parameters else None)
    return body, {HEADER_LENGTH: str(json_bytes), "Content-Type": "application/octet-stream"}


def grpc_request(model: str, name: str, datatype: str, array: Array) -> ModelInferRequest:
    message = ModelInferRequest(model_name=model, raw_input_contents=[array.tobytes()])
    message.inputs.add(name=name, datatype=datatype, shape=list(array.shape))
    return message


def input_names(client: Client, model: str) -> list[str]:
    return [entry["name"] for entry in client.metadata(model)["inputs"]]


def push(client: Client, model: Path, name: str, numerics: str) -> dict[str, Any]:
    return client.push(model, name, "host", numerics, lambda sent_bytes: None)


def build(client: Client, model: Path, name: str, numerics: str) -> tuple[dict[str, Any], list[Event]]:
    """Pushes a model, and returns its ended build and the build's events. Raises RuntimeError if the build failed."""
    pushed = push(client, model, name, numerics)
    events = list(client.events(pushed["id"]))  # ends when the build does
    done = client.build(pushed["id"])
    if done["state"] != "succeeded":
        raise RuntimeError(f"{name}: the build {done['state']}: {done['error']}")
    return done, events
