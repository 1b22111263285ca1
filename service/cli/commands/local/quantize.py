"""`octet quantize`: quantizes a float model with a calibration set, and shows the loss of accuracy."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.commands.local.quantize_steps import (
    live_ranges,
    push_quantized,
    quantize_remotely,
    show_trial,
    write_curve,
)
from service.cli.completion import complete_model
from service.cli.configuration import load_checked
from service.cli.options import (
    ClassesOfInputsOption,
    DialectOption,
    FixOption,
    InputShapeOption,
    JsonOption,
    KeyOption,
    LayoutOption,
    MeanOption,
    MemberOption,
    ResizeOption,
    ServerOption,
    SignatureOption,
    StdOption,
    UnsandboxedBuildOption,
    joined_shapes,
    joined_values,
    metadata_from,
)
from service.cli.output import reporting
from service.cli.versions import FORM
from service.core.builds.quantization import (
    MOST_ROUNDS,
    MOST_SAMPLES,
    LatencyBudget,
    Method,
    QuantizationOptions,
    Raised,
    Storage,
    parse_share,
)
from service.core.errors import InvalidInput

if TYPE_CHECKING:
    pass


_CURVES = (".json", ".svg", ".png")
_SUFFIXES = (".onnx", ".tflite", ".pt", ".pt2", ".pth")


def quantize(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="A float model: ONNX, TFLite, TorchScript or .pt2.", exists=True, dir_okay=False
        ),
    ],
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="DIR|FILE",
            help="The calibration inputs: pictures in a folder or a zip archive, or an .npz or .npy file with one "
            "array for each of the model's inputs. An array's first axis counts the inputs.",
            exists=True,
        ),
    ] = None,
    dynamic: Annotated[
        bool,
        typer.Option(
            "--dynamic",
            help="Without --data: quantize only matrix products, and compute the ranges of their inputs at run time.",
        ),
    ] = False,
    weight_bits: Annotated[
        int | None,
        typer.Option(
            "--weights",
            metavar="4|8",
            help="Without --data: quantize only the weights of matrix products, to this many bits.",
        ),
    ] = None,
    block: Annotated[int, typer.Option("--block", help="With --weights: how many weights share a scale.")] = 32,
    method: Annotated[
        Method, typer.Option("--method", help="How the ranges of activations are chosen from the calibration inputs.")
    ] = Method.MINMAX,
    storage: Annotated[
        Storage, typer.Option("--activations", help="The integer type in which activations are stored.")
    ] = Storage.UINT8,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            "--keep", metavar="TENSOR", help="Keep the operator that produces this tensor in float. Repeatable."
        ),
    ] = None,
    wide: Annotated[
        list[str] | None,
        typer.Option(
            "--wide",
            metavar="TENSOR",
            help="Give the operator that produces this tensor 16-bit activations and 8-bit weights (16x8). Repeatable.",
        ),
    ] = None,
    bfloat16: Annotated[
        list[str] | None,
        typer.Option(
            "--bfloat16",
            metavar="TENSOR",
            help="Compute the Conv, Gemm or MatMul that produces this tensor in bfloat16. Repeatable.",
        ),
    ] = None,
    equalize: Annotated[
        bool,
        typer.Option(
            "--equalize", help="First rescale the channels of neighbouring layers so that their ranges match."
        ),
    ] = False,
    correct_bias: Annotated[
        bool,
        typer.Option(
            "--correct-bias/--no-correct-bias",
            help="Adjust biases to compensate the shift of channel means that rounding the weights causes.",
        ),
    ] = True,
    adaround: Annotated[
        bool,
        typer.Option(
            "--adaround",
            help="Round each weight up or down so that the outputs of layers change least, instead of to the nearest.",
        ),
    ] = False,
    rounds: Annotated[
        int,
        typer.Option(
            "--rounds",
            min=0,
            max=MOST_ROUNDS,
            help="How often to choose the ranges again, from the activations of the quantized model.",
        ),
    ] = 0,
    sensitivity: Annotated[
        bool, typer.Option("--sensitivity", help="Also show the loss that quantizing each layer alone causes.")
    ] = False,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget",
            metavar="SHARE",
            help="The largest loss of accuracy, such as 0.5%: layers that lose most are raised to 16x8 (see "
            "--raise-to) or float until at most this share of the answers is lost.",
        ),
    ] = None,
    raise_to: Annotated[
        Raised,
        typer.Option(
            "--raise-to",
            help="The type that --budget prefers to float. bfloat16 is fast on targets with +bf16.",
        ),
    ] = Raised.WIDE,
    latency_budget: Annotated[
        str | None,
        typer.Option(
            "--latency-budget",
            metavar="TIME",
            help="The largest latency of a call, such as 5ms, or 1.2x (of the time with all layers in integers): as "
            "many of the layers that lose most as this allows stay in float. It takes precedence over --budget.",
        ),
    ] = None,
    curve_file: Annotated[
        Path | None,
        typer.Option(
            "--curve",
            help="Also write the accuracy of each mixture of layers to this .json, .svg or .png file.",
            dir_okay=False,
        ),
    ] = None,
    from_live: Annotated[
        str | None,
        typer.Option(
            "--from-live",
            metavar=FORM,
            autocompletion=complete_model,
            help="With --data: widen the ranges that live requests of this served model leave, as octet saturation "
            "shows them. FILE is the float model from which the newest version was quantized.",
        ),
    ] = None,
    labels: ClassesOfInputsOption = None,
    validate: Annotated[
        Path | None,
        typer.Option(
            "--validate",
            metavar="DIR|FILE",
            help="Measure the loss of accuracy on these held-out inputs, in a form of --data, instead of the "
            "calibration inputs.",
            exists=True,
        ),
    ] = None,
    validate_labels: Annotated[
        Path | None,
        typer.Option(
            "--validate-labels",
            metavar="FILE",
            help="The classes of the inputs of --validate, in the form of --labels.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    samples: Annotated[
        int, typer.Option("--samples", min=1, max=MOST_SAMPLES, help="Use at most this many inputs of --data.")
    ] = 256,
    output_file: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The file to write.",
            show_default="FILE with .int8, or .int4 for 4-bit weights",
            dir_okay=False,
        ),
    ] = None,
    push: Annotated[
        str | None, typer.Option("--push", metavar="NAME", help="Also push the quantized model under this name.")
    ] = None,
    on_server: Annotated[
        bool,
        typer.Option(
            "--on-server", help="Push the float model under the name of --push, and let the server quantize it."
        ),
    ] = False,
    member: MemberOption = "",
    signature: SignatureOption = "",
    input_shape: InputShapeOption = None,
    fix: FixOption = None,
    mean: MeanOption = "",
    std: StdOption = "",
    resize: ResizeOption = None,
    layout: LayoutOption = None,
    dialect: DialectOption = None,
    allow_unsandboxed: UnsandboxedBuildOption = False,
    server: ServerOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Quantize a float model, calibrated with sample inputs, and show the loss of accuracy."""
    from service.cli.commands.local.quantization_report import show
    from service.cli.stages import StageView
    from service.compiler.importers.uploads import upload_of
    from service.core.builds.fixed import parse_fixed
    from service.quantize.local import check_held_out, quantize_to, require_folder

    if on_server and push is None:
        raise typer.BadParameter("--on-server needs the model's name: --push NAME")
    if on_server and validate is not None:
        raise typer.BadParameter("--validate measures on this machine, so it cannot be combined with --on-server")
    if on_server and from_live is not None:
        raise typer.BadParameter("--from-live quantizes on this machine, so it cannot be combined with --on-server")
    with reporting(as_json) as output:
        metadata = metadata_from(None, mean, std, resize, layout)
        shapes, fixed = joined_shapes(input_shape), parse_fixed(joined_values(fix))
        limit = parse_share(budget) if budget else None
        bound = LatencyBudget.parse(latency_budget) if latency_budget else None
        ranked = sensitivity or curve_file is not None
        options = QuantizationOptions(
            method=method,
            activations=storage,
            keep=tuple(keep or ()),
            wide=tuple(wide or ()),
            bfloat16=tuple(bfloat16 or ()),
            equalize=equalize,
            correct_bias=correct_bias,
            adaround=adaround,
            rounds=rounds,
            sensitivity=ranked,
            budget=limit,
            raise_to=raise_to,
            latency_budget=bound,
            samples=samples,
            metadata=metadata,
            dynamic=dynamic,
            weights=weight_bits,
            block=block,
            live=() if from_live is None else live_ranges(output, from_live, server, key),
        )
        options.check(data is not None)
        settings = load_checked({"allow_unsandboxed": allow_unsandboxed or None, "build_nice": 0})
        stem = file.stem if file.suffix in _SUFFIXES else file.name
        target = output_file or file.with_name(f"{stem}{options.suffix}")
        if curve_file is not None and curve_file.suffix not in _CURVES:
            raise InvalidInput(
                f"{curve_file} does not end in one of {', '.join(_CURVES)}", hint="use a name like curve.svg"
            )
        for file_to_write in (target, curve_file):  # checked early, as quantizing takes a minute
            if file_to_write is not None:
                require_folder(file_to_write)
        if labels is not None and data is None:
            raise InvalidInput("--labels needs the inputs that the labels belong to", hint="pass --data too")
        check_held_out(data, validate, validate_labels)
        if on_server and push:
            with upload_of(file, member, signature) as upload:
                inputs = {"input_shape": shapes, "fix": joined_values(fix)}
                document = quantize_remotely(upload, push, data, labels, options, inputs, target, output, server, key)
        else:
            with StageView(output.progress) as view:
                report = quantize_to(
                    file,
                    target,
                    options,
                    settings,
                    view,
                    data=data,
                    labels=labels,
                    held_out=validate,
                    held_out_labels=validate_labels,
                    input_shape=shapes,
                    fixed=fixed,
                    member=member,
                    signature=signature,
                )
                view.finish(time.monotonic())
            document = {"output": str(target), **report}
        if curve_file is not None:
            write_curve(curve_file, document["sensitivity"]["curve"], document["inputs"])
        if not as_json:
            show(output, document)
        if push and not on_server:
            left = joined_shapes([each for each in input_shape or [] if each.rpartition("=")[0].strip() not in fixed])
            document["pushed"] = push_quantized(output, target, push, server, key, left, metadata)
            if from_live is not None and not as_json:
                show_trial(output, push, document["pushed"]["build"])
        if as_json:
            output.document(document)
        elif not push:
            output.next_command(f"octet push {shlex.quote(str(target))}")
