"""`octet predict`: sends one request to a served model, in binary."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from service.cli.answers import Answer, show_answer
from service.cli.client import Client
from service.cli.options import (
    InputFiles,
    JsonOption,
    KeyOption,
    LabelsOption,
    RawOption,
    SaveOption,
    ServerOption,
    server_url,
)
from service.cli.output import reporting
from service.cli.tensors import read_input
from service.core.errors import InvalidInput
from service.core.models.arrays import Array
from service.core.models.signature import TensorSpec


def predict(
    name: Annotated[str, typer.Argument(help="The model's name, as octet models lists it.")],
    inputs: InputFiles,
    version: Annotated[
        int | None, typer.Option("--version", help="The version to use.", show_default="the newest")
    ] = None,
    labels: LabelsOption = None,
    save: SaveOption = None,
    raw: RawOption = False,
    server: ServerOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a served model on a picture or a tensor."""
    with reporting(as_json) as output, Client(server_url(server), key) as client:
        answer = ask(client, name, [read_input(path) for path in inputs], version)
        show_answer(output, answer, labels, save, raw)


def ask(client: Client, name: str, inputs: Sequence[Array | bytes], version: int | None = None) -> Answer:
    """Sends a prediction request. The result's time is the request's whole round trip, as this client sees it.

    Raises:
        InvalidInput: the number of inputs is not that of the model.
    """
    metadata = client.metadata(name, version)
    names = [spec["name"] for spec in metadata["inputs"]]
    if len(names) != len(inputs):
        raise InvalidInput(f"{name} has {len(names)} inputs, but {len(inputs)} were given", hint=", ".join(names))
    started_s = time.perf_counter()
    header, outputs = client.infer(name, names, inputs, version)
    took_s = time.perf_counter() - started_s
    labels = metadata.get("parameters", {}).get("labels", ())
    title = f"{header['model_name']} version {header['model_version']}"
    return Answer(title, outputs, [spec_of(described) for described in metadata["outputs"]], took_s, labels)


def spec_of(described: dict[str, Any]) -> TensorSpec:
    """Returns the spec of a tensor in a model's metadata; its quantization is in the tensor's parameters."""
    quantization = described.get("parameters")
    return TensorSpec.from_json(described | {"quantization": quantization})
