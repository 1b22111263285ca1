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
    ServerOption,
    read_labels,
)
from service.cli.output import FAILURE, reporting
from service.cli.predicting.formats import Format, OutputFormat
from service.cli.predicting.inputs import Item, count_of, has_one_sample, items_of
from service.cli.versions import ModelArgument, resolve_model
from service.core.errors import InvalidInput

if TYPE_CHECKING:
    from service.cli.client import Client
    from service.cli.predicting.answers import Answer
    from service.core.models.arrays import Array
    from service.core.models.signature import TensorSpec


_MOST_FETCHED_BYTES = 64 << 20


def predict(
    model: ModelArgument,
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...",
            help="Pictures, sounds, tensors in .npy or .npz files, folders of these, a text, a .txt, .csv, .jsonl or "
            ".json file with several inputs, - for such lines from stdin, or a URL of the server. For a model of "
            "several inputs: one file for each.",
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
    save: Annotated[
        Path | None,
        typer.Option(
            "--save",
            metavar="FILE|DIR",
            help="Also write the first output to this .npy file, or, for a model that detects objects, the picture "
            "with the boxes drawn on it to this .png or .jpg file; the pictures to this folder if there are several.",
        ),
    ] = None,
    raw: RawOption = False,
    server: ServerOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a served model on texts, pictures or tensors.

    Several inputs are sent in parallel; their results are written in order. Exit status 1: an input failed.
    """
    from service.cli.predicting.answers import show_answer
    from service.cli.predicting.drawing import save_pictures
    from service.cli.predicting.predictions import Predictor, predict_all, show_results
    from service.cli.predicting.tensors import split_samples
    from service.core.models.task import Task
    from service.runtime.protocol import metadata_of, signature_of
    from service.runtime.results import picture_size

    with reporting(as_json) as output, connect(server, key) as client:
        name, version = resolve_model(client, model)
        described = client.metadata(name, version)
        signature, metadata = signature_of(described), metadata_of(described)
        saves_outputs = raw or (save is not None and save.suffix.lower() == ".npy")
        is_plain = format is None and output_format is None and query is None
        if is_plain and (metadata.task is not Task.DETECT or saves_outputs):
            tensors = single_request(inputs, signature.inputs)
            if tensors is not None:
                show_answer(output, ask(client, name, tensors, version, described), labels, save, raw)
                return
        if saves_outputs:
            raise InvalidInput(
                "--raw, and --save with a .npy file, are for a single prediction",
                hint="leave out --output and --format",
            )
        if labels is not None:
            metadata = replace(metadata, labels=read_labels(labels))
        predictor = Predictor(client, name, version, signature, metadata, top)
        chosen = output_format or (OutputFormat.JSONL if as_json else OutputFormat.TABLE)
        items = items_of(inputs, format, sys.stdin, lambda url: client.fetch(url, _MOST_FETCHED_BYTES))
        if query is not None:
            items = (_paired(each, query) for each in items)
        samples = (sample for item in items for sample in split_samples(item, signature.inputs))
        results = predict_all(predictor.predict, samples, parallel)
        if save is not None:
            results = save_pictures(results, save, metadata, picture_size(signature.inputs, metadata))
        if show_results(output, results, chosen, count_of(inputs, format)):
            raise typer.Exit(FAILURE)


def single_request(inputs: Sequence[str], specs: Sequence[TensorSpec]) -> list[Array | bytes] | None:
    """Returns the inputs of the only request, in the model's order, if `inputs` are one file for each input of the
    model, or one file with a single sample; otherwise None.

    Raises:
        InvalidInput: a file is damaged, or its arrays are not the model's inputs.
    """
    from service.cli.predicting.tensors import split_samples
    from service.runtime.protocol import read_input

    if not all(map(has_one_sample, inputs)):
        return None
    files = [Path(each) for each in inputs]
    if len(files) > 1:
        return [read_input(file) for file in files] if len(specs) > 1 else None
    samples = list(split_samples(Item(inputs[0], file=files[0]), specs))
    if len(samples) > 1:
        return None
    if samples[0].problem is not None:
        raise samples[0].problem
    arrays = samples[0].arrays
    return [read_input(files[0])] if arrays is None else [arrays[spec.name] for spec in specs]


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
