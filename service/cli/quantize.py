"""`octet quantize`: a float ONNX model and some of its inputs -> a quantized file, and what that cost."""

from __future__ import annotations

import shlex
import shutil
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from service.cli.options import (
    InputShapeOption,
    JsonOption,
    KeyOption,
    LayoutOption,
    MeanOption,
    ResizeOption,
    ServerOption,
    StdOption,
    load_checked,
    metadata_from,
    server_url,
)
from service.cli.output import Output, reporting
from service.cli.stages import StageView
from service.compiler.importers.uploads import upload_of
from service.compiler.sandbox.policy import unlimited
from service.core.metadata import NOTHING, ModelMetadata
from service.core.options import parse_open_shapes, shapes_of, with_sizes
from service.core.quantization import MOST_SAMPLES, Method, QuantizationOptions, Storage, parse_share
from service.core.settings import Settings
from service.quantize import sandboxed
from service.quantize.sandboxed import Request

_SHOWN = 10  # of the noisiest tensors
_MOST_BYTES = 1 << 40  # that the child may write


def quantize(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A float ONNX model.", exists=True, dir_okay=False)],
    data: Annotated[
        Path,
        typer.Option(
            "--data",
            metavar="DIR|FILE",
            help="Inputs: pictures in a folder or a zip archive, or arrays in an .npz or .npy, [count, …] for each of "
            "the model's inputs.",
            exists=True,
        ),
    ],
    method: Annotated[Method, typer.Option("--method", help="How ranges are chosen.")] = Method.MINMAX,
    storage: Annotated[Storage, typer.Option("--activations", help="How activations are stored.")] = Storage.UINT8,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            "--keep", metavar="TENSOR", help="Leave the operator that makes this tensor in float. Repeatable."
        ),
    ] = None,
    sensitivity: Annotated[
        bool, typer.Option("--sensitivity", help="Also show what each layer's quantization costs alone.")
    ] = False,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget",
            metavar="SHARE",
            help="Leave the layers in float that cost most, until at most this share of answers is lost, such as 0.5%.",
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            "--labels", help="A CSV of file,class (or of class alone, for arrays).", exists=True, dir_okay=False
        ),
    ] = None,
    samples: Annotated[
        int, typer.Option("--samples", min=1, max=MOST_SAMPLES, help="Use at most so many inputs.")
    ] = 256,
    output_file: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The file to write.", show_default="FILE with .int8", dir_okay=False),
    ] = None,
    push: Annotated[str | None, typer.Option("--push", metavar="NAME", help="Also push it under this name.")] = None,
    input_shape: InputShapeOption = "",
    mean: MeanOption = "",
    std: StdOption = "",
    resize: ResizeOption = None,
    layout: LayoutOption = None,
    allow_unsandboxed: Annotated[
        bool, typer.Option("--allow-unsandboxed", help="Go on even if this kernel cannot sandbox the compiler.")
    ] = False,
    server: ServerOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Quantize a float ONNX model by some of its inputs, and show what that costs."""
    with reporting(as_json) as output:
        metadata = metadata_from(None, mean, std, resize, layout)
        limit = parse_share(budget) if budget else None
        asked = QuantizationOptions(method, storage, tuple(keep or ()), sensitivity, limit, samples, metadata)
        settings = load_checked({"allow_unsandboxed": allow_unsandboxed or None, "build_nice": 0})
        target = output_file or file.with_name(f"{file.name.removesuffix('.onnx')}.int8.onnx")
        shapes = shapes_of(with_sizes([1], parse_open_shapes(input_shape))[0])
        with upload_of(file) as upload:
            request = Request(
                upload.absolute(), data.absolute(), asked, labels and labels.absolute(), data.name, shapes
            )
            document = _quantized(request, target, output, settings)
        if not as_json:
            _show(output, document)
        if push:
            document["pushed"] = _push(output, target, push, server, key, input_shape, metadata)
        if as_json:
            output.document(document)
        elif not push:
            output.next_command(f"octet push {shlex.quote(str(target))}")


def _quantized(request: Request, target: Path, output: Output, settings: Settings) -> dict[str, Any]:
    """Writes the quantized model; what it costs."""
    with tempfile.TemporaryDirectory() as scratch, StageView(output.progress) as view:
        result = sandboxed.quantize(request, Path(scratch), view, settings, unlimited(_MOST_BYTES))
        view.finish(time.monotonic())
        shutil.copyfile(result.file, target)
        return {"output": str(target), **result.report}


def _push(
    output: Output, file: Path, name: str, server: str | None, key: str | None, shape: str, metadata: ModelMetadata
) -> dict[str, Any]:
    from service.cli.client import Client
    from service.cli.push import push_model
    from service.cli.reports import summary

    options = {"input_shape": shape} if shape else {}
    with Client(server_url(server), key) as client:
        pushed = push_model(client, file, name, "host", None, output, options, metadata=metadata or NOTHING)
    if not output.as_json:
        output.show(f"{name} in {pushed['seconds']:.2f} s", summary(pushed["reports"]))
    return pushed


def _show(output: Output, document: dict[str, Any]) -> None:
    sizes = document["bytes"]
    times = sizes["float"] / sizes["quantized"]
    output.show(
        f"{document['output']}: {sizes['quantized']:,} bytes, {times:.2f} times smaller; "
        f"{document['quantized']} operators in integers, by {document['method']} of {document['inputs']} inputs"
    )
    if same := document.get("same_class"):
        output.show(_line("same class", same))
    for kind, counted in document.get("accuracy", {}).items():
        output.show(_line(f"{kind} right", counted))
    table = Table("tensor", "signal to noise", title="Noise of the quantized model, the worst tensors first", box=None)
    noisy = sorted(document["tensors_db"].items(), key=lambda each: _decibels(each[1]))[:_SHOWN]
    for name, value in (*document["outputs_db"].items(), *noisy):
        kind = "output " if name in document["outputs_db"] else ""
        table.add_row(Text(kind + name), _noise(value))
    output.show(table)
    if costs := document.get("sensitivity"):
        output.show(*_sensitivity(costs, "right" if "accuracy" in document else "same class"))
    for each in document["float"]:
        output.show(f"  float        {each['operators']} {each['op_type']}: {each['reason']}")


def _sensitivity(costs: dict[str, Any], what: str) -> tuple[Table, Table]:
    layers = Table("layer", "output, with it alone in integers", title="Cost of each layer, the worst first", box=None)
    for name, value in list(costs["layers_db"].items())[:_SHOWN]:
        layers.add_row(Text(name), _noise(value))
    curve = Table("of these in float", what, "output", title="Cost of all, with the worst in float", box=None)
    for point in costs["curve"]:
        curve.add_row(str(len(point["kept"])), f"{100 * point['share']:.1f} %", _noise(point["output_db"]))
    return layers, curve


def _noise(value: float | None) -> str:
    return "no noise" if value is None else f"{value:.1f} dB"


def _decibels(value: float | None) -> float:
    return float("inf") if value is None else value


def _line(label: str, counted: dict[str, Any]) -> str:
    share, error = 100 * counted["share"], 100 * counted["standard_error"]
    return f"  {label:<16} {counted['right']} of {counted['inputs']}: {share:.1f} % (standard error {error:.1f})"
