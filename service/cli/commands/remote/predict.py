"""`octet predict`: sends inputs to a served model, and shows the results by the model's task."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.connection import connect
from service.cli.options import (
    JsonOption,
    KeyOption,
    LabelsOption,
    RawOption,
    SaveOption,
    ServerOption,
    read_labels,
)
from service.cli.output import FAILURE, reporting
from service.cli.predicting.formats import Format, OutputFormat
from service.cli.predicting.inputs import Item, items_of
from service.cli.versions import ModelArgument, resolve_model
from service.core.errors import InvalidInput

if TYPE_CHECKING:
    from service.cli.client import Client
    from service.cli.predicting.answers import Answer
    from service.core.models.arrays import Array


_SEVERAL = (".txt", ".csv", ".jsonl", ".ndjson")  # files that contain several inputs


def predict(
    model: ModelArgument,
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...",
            help="Pictures, tensors in .npy files, folders of these, a text, a .txt, .csv or .jsonl file with an input "
            "on each line, or - for such lines from stdin. For a model of several inputs: one file for each.",
        ),
    ],
    format: Annotated[
        Format | None,
        typer.Option("--format", help="The format of lines.", show_default="by the file's name or its first line"),
    ] = None,
    output_format: Annotated[
        OutputFormat | None,
        typer.Option("--output", help="How to write the results.", show_default="table; a picture's classes as bars"),
    ] = None,
    query: Annotated[
        str | None,
        typer.Option("--query", help="For a reranker: the first text of each pair. The inputs are the second texts."),
    ] = None,
    parallel: Annotated[
        int, typer.Option("--parallel", min=1, max=256, help="The number of requests at a time, for several inputs.")
    ] = 8,
    top: Annotated[
        int | None,
        typer.Option(
            "--top", min=1, help="The number of classes or boxes of each result.", show_default="5 classes, 100 boxes"
        ),
    ] = None,
    labels: LabelsOption = None,
    save: SaveOption = None,
    raw: RawOption = False,
    server: ServerOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a served model on texts, pictures or tensors.

    Several inputs are sent in parallel; their results are written in order. Exit status 1: an input failed.
    """
    from service.cli.predicting.answers import show_answer
    from service.cli.predicting.predictions import Predictor, predict_all, show_results
    from service.runtime.protocol import metadata_of, read_input, signature_of

    with reporting(as_json) as output, connect(server, key) as client:
        name, version = resolve_model(client, model)
        described = client.metadata(name, version)
        signature = signature_of(described)
        files = [Path(each) for each in inputs]
        is_one = format is None and output_format is None and query is None and all(map(_has_one_input, files))
        if is_one and (len(files) == 1 or len(signature.inputs) > 1):
            answer = ask(client, name, [read_input(path) for path in files], version, described)
            show_answer(output, answer, labels, save, raw)
            return
        if save or raw:
            raise InvalidInput("--save and --raw are for a single prediction", hint="leave out --output and --format")
        metadata = metadata_of(described)
        if labels is not None:
            metadata = replace(metadata, labels=read_labels(labels))
        predictor = Predictor(client, name, version, signature, metadata, top)
        chosen = output_format or (OutputFormat.JSON if as_json else OutputFormat.TABLE)
        items = items_of(inputs, format, sys.stdin)
        if query is not None:
            items = (_paired(each, query) for each in items)
        results = predict_all(predictor.predict, items, parallel)
        if show_results(output, results, chosen):
            raise typer.Exit(FAILURE)


def ask(
    client: Client,
    name: str,
    inputs: Sequence[Array | bytes],
    version: int | None = None,
    described: dict[str, Any] | None = None,
) -> Answer:
    """Sends a prediction request. The result's time is the request's whole round trip, as this client sees it.

    Args:
        described: the model's metadata, if the caller has it already.

    Raises:
        InvalidInput: the number of inputs is not that of the model.
    """
    from service.cli.predicting.answers import Answer
    from service.runtime.protocol import metadata_of, signature_of

    described = described or client.metadata(name, version)
    names = [spec["name"] for spec in described["inputs"]]
    if len(names) != len(inputs):
        raise InvalidInput(f"{name} has {len(names)} inputs, but {len(inputs)} were given", hint=", ".join(names))
    started_s = time.perf_counter()
    header, outputs = client.infer(name, names, inputs, version)
    took_s = time.perf_counter() - started_s
    metadata = metadata_of(described)
    title = f"{header['model_name']} version {header['model_version']}"
    specs = signature_of(described).outputs
    return Answer(title, outputs, specs, took_s, metadata.labels, metadata.activation)


def _paired(item: Item, query: str) -> Item:
    if item.text is None or item.pair is not None:
        raise InvalidInput(f"{item.name} is not a text, but --query needs texts")
    return replace(item, text=query, pair=item.text)


def _has_one_input(path: Path) -> bool:
    """Returns true for a file with the data of one input."""
    try:
        return path.is_file() and path.suffix.lower() not in _SEVERAL
    except OSError:  # a text that is too long for a path
        return False
