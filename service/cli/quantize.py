"""`octet quantize`: a float ONNX model and some of its inputs -> a quantized file, and what that cost."""

from __future__ import annotations

import shlex
import tempfile
from dataclasses import replace
from enum import StrEnum
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
from service.compiler.importers.uploads import upload_of
from service.core.build import Stage
from service.core.errors import InvalidInput
from service.core.metadata import NOTHING, ModelMetadata
from service.core.options import parse_open_shapes, shapes_of, with_sizes

_SHOWN = 10  # of the noisiest tensors


class Method(StrEnum):
    """The names of `quantize.methods.METHODS`, which a test compares."""

    MINMAX = "minmax"
    PERCENTILE = "percentile"
    KL = "kl"
    MSE = "mse"
    POWER_OF_TWO = "power-of-two"
    MOVING_AVERAGE = "moving-average"


class Storage(StrEnum):
    UINT8 = "uint8"
    INT8 = "int8"


def quantize(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A float ONNX model.", exists=True, dir_okay=False)],
    data: Annotated[
        Path,
        typer.Option(
            "--data",
            metavar="DIR|FILE",
            help="Inputs: a folder of pictures, or an .npz of an array for each of the model's inputs, or an .npy.",
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
    samples: Annotated[int, typer.Option("--samples", min=1, help="Use at most so many inputs.")] = 256,
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
        from service.quantize.data import Data, labels_of
        from service.quantize.observing import Workshop
        from service.quantize.quantization import Calibration, Options

        metadata = metadata_from(None, mean, std, resize, layout)
        inputs = Data(data, metadata, samples)
        known = labels_of(labels, inputs) if labels else []
        limit = _share(budget) if budget else None
        shapes = shapes_of(with_sizes([1], parse_open_shapes(input_shape))[0])
        options = Options(method.value, storage.value, tuple(keep or ()))
        target = output_file or file.with_name(f"{file.name.removesuffix('.onnx')}.int8.onnx")
        settings = load_checked({"allow_unsandboxed": allow_unsandboxed or None, "build_nice": 0})
        with tempfile.TemporaryDirectory() as scratch, upload_of(file) as upload:
            model = upload.read_bytes()
            progress = _Progress(output)
            workshop = Workshop(Path(scratch), settings, progress, shapes, tick=progress.tick)
            calibration = Calibration(model, workshop, inputs, options)
            costs: dict[str, Any] = {}
            if sensitivity or limit is not None:
                ranked = calibration.sensitivity(options)
                enough, curve = ranked.within(limit, known) if limit is not None else (None, ranked.curve(known))
                costs = {"sensitivity": ranked.to_json(curve)}
                if enough is not None:
                    options = replace(options, kept=(*options.kept, *enough.kept))
            quantized = calibration.quantize(options)
            measured = calibration.measure(quantized, known).to_json() | costs
        target.write_bytes(quantized.file)
        document = {
            "output": str(target),
            "bytes": {"float": len(model), "quantized": len(quantized.file)},
            "method": method.value,
            "activations": storage.value,
            "quantized": len(quantized.plan.layers),
            "float": [{"op_type": kind, "reason": why, "operators": number} for kind, why, number in quantized.real],
            **measured,
        }
        if not as_json:
            _show(output, document)
        if push:
            document["pushed"] = _push(output, target, push, server, key, input_shape, metadata)
        if as_json:
            output.document(document)
        elif not push:
            output.next_command(f"octet push {shlex.quote(str(target))}")


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


def _share(text: str) -> float:
    """`0.5%` or `0.005`."""
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError as error:
        raise InvalidInput(f"{text!r} is no share", hint="such as 0.5%") from error
    if not 0 <= share < 1:
        raise InvalidInput(f"{text!r} is no share of all answers", hint="such as 0.5%")
    return share


class _Progress:
    """A line for each model that is built, and for the inputs that were run."""

    def __init__(self, output: Output) -> None:
        self._output, self._stage = output, Stage.LINK

    def stage(self, stage: Stage, fraction: float = 0.0) -> None:
        if stage is Stage.IMPORT and self._stage is not stage:
            self._output.progress.print("  build        a model to measure with")
        self._stage = stage

    def log(self, line: str) -> None:
        pass

    def tick(self, what: str, number: int) -> None:
        self._output.progress.print(f"  {what:<12} {number} inputs")


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
