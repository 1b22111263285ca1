"""Quantizes float models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from octet._work import Stages, TemporaryFolder
from service.cli.live import live_ranges
from service.core.builds.dialects import added
from service.core.builds.fixed import check_fixed
from service.core.builds.quantization import (
    LatencyBudget,
    Method,
    QuantizationOptions,
    Raised,
    Storage,
    parse_share,
)
from service.core.models.arrays import Array
from service.core.models.metadata import ModelMetadata
from service.core.settings import load_settings


def quantize(
    source: str | Path,
    output: str | Path | None = None,
    *,
    data: str | Path | Iterable[Array | Mapping[str, Array]] | None = None,
    labels: str | Path | Sequence[int | str] | Mapping[str, int | str] | None = None,
    held_out: str | Path | Iterable[Array | Mapping[str, Array]] | None = None,
    held_out_labels: str | Path | Sequence[int | str] | Mapping[str, int | str] | None = None,
    samples: int = 256,
    method: str = "minmax",
    activations: str = "uint8",
    keep: Sequence[str] = (),
    wide: Sequence[str] = (),
    bfloat16: Sequence[str] = (),
    equalize: bool = False,
    correct_bias: bool = True,
    adaround: bool = False,
    rounds: int = 0,
    sensitivity: bool = False,
    budget: float | str | None = None,
    raise_to: str = "16x8",
    latency_budget: str | None = None,
    dynamic: bool = False,
    weights: int | None = None,
    block: int = 32,
    mean: Sequence[float] = (),
    std: Sequence[float] = (),
    resize: str | None = None,
    layout: str | None = None,
    input_shape: str = "",
    fix: Mapping[str, float | Sequence[float]] | None = None,
    member: str = "",
    signature: str = "",
    live: Mapping[str, tuple[float, float]] | None = None,
    dialects: Sequence[str | Path] = (),
    sandboxed: bool = True,
    on_stage: Callable[[str], None] | None = None,
) -> Quantized:
    """Quantizes a float model, and measures the loss of accuracy.

    A model is quantized in one of three ways: with calibration inputs (`data`), with ranges that the model computes
    when it runs (`dynamic`), or with its weights alone in integers (`weights`).

    Args:
        source: a float model: an .onnx, .tflite, .pt or .pt2 file.
        output: the ONNX file to write; by default one in a temporary folder, which is deleted together with the
            returned object.
        data: the calibration inputs. A folder or .zip archive of pictures, or an .npz or .npy file with arrays
            `[count, …]`; or an iterable with an item for each sample: an array, or a mapping from the names of the
            model's inputs to arrays. An array has the shape of the model's input, with or without the axis of samples.
        labels: the classes of the inputs, to measure accuracy: a CSV file with lines of `file,class` for pictures or
            of `class` for arrays; or a mapping from pictures to classes, or a sequence of the classes of arrays.
        samples: the most inputs that are used.
        held_out: other inputs, in a form of `data`. The loss of accuracy is then measured on all of these instead of
            the calibration inputs, which the ranges were fitted to.
        held_out_labels: the classes of these inputs, in a form of `labels`.
        method: how ranges are chosen: `minmax`, `moving-average`, `percentile`, `mse`, `kl` or `power-of-two`.
        activations: the type of activations, `uint8` or `int8`. Weights are int8.
        keep, wide, bfloat16: the names of the outputs of operators that stay in float, that get 16-bit activations and
            8-bit weights, and that multiply bfloat16.
        equalize: true to scale the channels of adjacent layers to equal ranges first.
        correct_bias: false to leave biases as they are.
        adaround: true to round each weight so that the outputs of layers change least.
        rounds: how often ranges are chosen again, from the activations of the quantized model.
        sensitivity: true to also measure the loss that each layer causes alone.
        budget: the largest share of right answers that may be lost, such as 0.005 or `0.5%`. As many layers as that
            needs leave 8-bit integers.
        raise_to: the type that `budget` prefers to float: `16x8` or `bfloat16`.
        latency_budget: the largest time of a call, such as `5ms`, or `1.2x` the time in integers.
        dynamic: true to quantize only matrix products, with ranges that the model computes.
        weights: 4 or 8, to quantize only the weights of matrix products, to this number of bits.
        block: the number of such weights that share a scale.
        mean, std, resize, layout: how pictures become inputs, as in `octet quantize`. By default as the file defines.
        input_shape: the shapes of inputs whose shapes the file leaves open, as in `octet.compile`.
        fix, member, signature: as in `octet.compile`. The quantized model does not have the inputs in `fix`.
        live: with `data`: the lowest and highest value that tensors must be able to store, by name, as
            `Client.live_ranges` returns them.
        dialects: files that define operators, patterns, passes or formats, or names of entry points, besides those in
            `OCTET_DIALECTS` (docs/how-to/dialects.md). Their code runs, so name only files that you trust. What other
            threads compile meanwhile is compiled with them too.
        sandboxed: false to continue even if this kernel cannot isolate the compiler's processes. Do so only with files
            that you trust.
        on_stage: called with the name of each stage when it begins: `calibrate`, `rank`, `measure`.

    Raises:
        InvalidInput: an option or a calibration input cannot be used; the error names the input.
        InvalidTensor: a calibration input does not have the shape or type of the model's input.
        Unsupported, UnsupportedFormat, UnsupportedOperator: Octet does not quantize the file, for example because it is
            quantized already.
        MalformedModel: the file is damaged.
        FileNotFoundError: the file does not exist.
    """
    from service.quantize.local import parse_choice, quantize_to

    options = QuantizationOptions(
        method=parse_choice(Method, method, "method"),
        activations=parse_choice(Storage, activations, "activations"),
        keep=tuple(keep),
        wide=tuple(wide),
        bfloat16=tuple(bfloat16),
        equalize=equalize,
        correct_bias=correct_bias,
        adaround=adaround,
        rounds=rounds,
        sensitivity=sensitivity,
        budget=None if budget is None else parse_share(str(budget)),
        raise_to=parse_choice(Raised, raise_to, "raise_to"),
        latency_budget=None if latency_budget is None else LatencyBudget.parse(latency_budget),
        samples=samples,
        metadata=ModelMetadata.from_json({"mean": mean, "std": std, "resize": resize, "layout": layout}),
        dynamic=dynamic,
        weights=weights,
        block=block,
        live=live_ranges(live or {}),
    )
    folder = TemporaryFolder() if output is None else None
    path = folder.path / f"{Path(source).stem}{options.suffix}" if folder is not None else Path(output or "")
    settings = load_settings({"allow_unsandboxed": not sandboxed or None, "build_nice": 0})
    progress = Stages(on_stage)
    with added(dialects):
        report = quantize_to(
            Path(source),
            path,
            options,
            settings,
            progress,
            data=data,
            labels=labels,
            held_out=held_out,
            held_out_labels=held_out_labels,
            input_shape=input_shape,
            fixed=check_fixed(fix or {}),
            member=member,
            signature=signature,
        )
    return Quantized(path, report, folder)


class Quantized:
    """A quantized model in an ONNX file. Pass it to `octet.compile` or `Client.push`.

    Attributes:
        path: the file.
        report: what `octet quantize --json` prints: sizes, the loss of accuracy, and the operators that stay in float
            with the reasons.
    """

    def __init__(self, path: Path, report: dict[str, Any], folder: object = None) -> None:
        self.path, self.report = path, report
        self._folder = folder  # a temporary folder, which exists as long as this object

    def __fspath__(self) -> str:
        """The path of the file, for functions that take a path."""
        return str(self.path)

    @property
    def outputs_db(self) -> dict[str, float | None]:
        """The signal-to-noise ratio of each output in dB, where the signal is the float model's output and the noise is
        the difference from it. None without noise; empty if there were no calibration inputs.
        """
        return dict(self.report.get("outputs_db", {}))

    @property
    def tensors_db(self) -> dict[str, float | None]:
        """The signal-to-noise ratio of each stored tensor, in the form of `outputs_db`. It includes the noise of the
        layers before.
        """
        return dict(self.report.get("tensors_db", {}))

    @property
    def layers_db(self) -> dict[str, float | None]:
        """The signal-to-noise ratio of the first output with each layer alone in integers, the worst first. Empty
        unless the losses of layers were measured: with `sensitivity=True` or a budget.
        """
        return dict(self.report.get("sensitivity", {}).get("layers_db", {}))

    def __repr__(self) -> str:
        report = self.report
        if "layers" in report:
            return f"<octet.Quantized {self.path}: {len(report['layers'])} matrix products>"
        real = sum(each["operators"] for each in report["float"])
        noise = (f"{name} {'exact' if db is None else f'{db:.1f} dB'}" for name, db in self.outputs_db.items())
        parts = [f"{report['quantized']} operators in integers, {real} in float", *noise]
        if same := report.get("same_class"):
            parts.append(f"same class {same['right']} of {same['inputs']}")
        return f"<octet.Quantized {self.path}: {'; '.join(parts)}>"
