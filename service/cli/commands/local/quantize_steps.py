"""The steps of `octet quantize` besides quantizing: live ranges, the curve, quantizing on a server, and the push."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.cli.connection import connect

if TYPE_CHECKING:
    from service.cli.output import Output
    from service.core.builds.quantization import LiveRange, QuantizationOptions
    from service.core.models.metadata import ModelMetadata


def live_ranges(output: Output, model: str, server: str | None, key: str | None) -> tuple[LiveRange, ...]:
    """Returns the ranges that live requests of a model need, and prints them.

    Raises:
        InvalidInput: nothing was counted, or live data does not leave a range.
    """
    from service.cli.live import fetch_proposal

    with connect(server, key) as client:
        proposal = fetch_proposal(client, model)
    for tensor, (low, high) in proposal.proposed.items():
        stored_low, stored_high = proposal.stored[tensor]
        output.note(f"{tensor}: {stored_low:.4g} to {stored_high:.4g} becomes at least {low:.4g} to {high:.4g}")
    return proposal.ranges


def show_trial(output: Output, name: str, build: dict[str, Any]) -> None:
    """Prints the commands that try the new version on a share of the requests."""
    version = next(each["version"] for each in build["models"] if each["name"] == name)
    output.next_command(f"octet promote {shlex.quote(name)}:{version} --percent 10")
    output.next_command(f"octet saturation {shlex.quote(name)}:{version}")


def write_curve(file: Path, curve: list[dict[str, Any]], inputs: int) -> None:
    """Writes the curve, which was measured on `inputs` inputs, in the format of the file's name."""
    from service.quantize.search import plot
    from service.quantize.search.sensitivity import Point

    points = [Point.from_json(each) for each in curve]
    match file.suffix:
        case ".json":
            file.write_text(json.dumps(curve, indent=2) + "\n", encoding="utf-8")
        case ".svg":
            file.write_text(plot.svg(points, inputs), encoding="utf-8")
        case _:
            file.write_bytes(plot.png(points, inputs))


def quantize_remotely(
    upload: Path,
    name: str,
    data: Path | None,
    labels: Path | None,
    options: QuantizationOptions,
    inputs: Mapping[str, str],
    target: Path,
    output: Output,
    server: str | None,
    key: str | None,
) -> dict[str, Any]:
    from service.cli.commands.remote.quantize_on_server import quantize_on_server
    from service.cli.reports import summary

    with connect(server, key) as client:
        document = quantize_on_server(client, upload, name, data, labels, options, inputs, target, output)
    if not output.as_json:
        output.show(f"{name} version {document['version']}", summary(document["reports"]))
    return document


def push_quantized(
    output: Output, file: Path, name: str, server: str | None, key: str | None, shape: str, metadata: ModelMetadata
) -> dict[str, Any]:
    from service.cli.published import Description
    from service.cli.pushing import push_model
    from service.cli.reports import summary

    options = {"input_shape": shape} if shape else {}
    with connect(server, key) as client:
        pushed = push_model(client, file, name, "host", None, output, options, described=Description(metadata))
    if not output.as_json:
        output.show(f"{name} in {pushed['seconds']:.2f} s", summary(pushed["reports"]))
    return pushed
