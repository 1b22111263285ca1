"""The roles of the sandboxed child process that quantizes. `quantize.sandboxed` is its parent."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from service.compiler.children import observing_roles
from service.compiler.children.handler import handles
from service.compiler.importers.onnx.file.metadata import parse
from service.compiler.importers.onnx.file.reader import read_model
from service.compiler.messages.checking import ArtifactFiles
from service.compiler.messages.role import Empty, Request, Result, Role
from service.compiler.sandbox import Report
from service.core.builds.build import Stage
from service.core.builds.quantization import MOST_SAMPLES, QuantizationOptions
from service.core.errors import InvalidInput
from service.core.models.metadata import NOTHING, ModelMetadata
from service.quantize.calibration.data import Data, labels_of
from service.quantize.calibration.observing import CalibrationSession
from service.quantize.export.model import as_onnx
from service.quantize.messages import QUANTIZE, QuantizeRequest, answer_file
from service.quantize.mixtures import choose_mixture, is_searched
from service.quantize.quantization import Calibration, Options
from service.quantize.rewrites.uncalibrated import blocked, dynamic
from service.quantize.steps.write import describe, write
from service.quantize.weights.fitting import Fit

_WORK, _ASKED_FILE = Path(".work"), ".model.onnx"
_POLL_S = 0.02


@handles(QUANTIZE)
def quantize_role(request: QuantizeRequest, report: Report) -> Empty:
    """Quantizes a float model, with a calibration set if the options need one. Writes the quantized file and the report
    to the working directory.
    """
    progress = _ProgressLog(report)
    source = request.model.read_bytes()
    model = as_onnx(
        source, request.shapes, lambda op, tensor: report.at(stage=Stage.IMPORT, op=op, tensor=tensor), request.fixed
    )
    quantize = _with_inputs if request.options.takes_inputs else _without_inputs
    write(source, model, *quantize(model, request, progress))
    return Empty()


def _with_inputs(model: bytes, request: QuantizeRequest, progress: _ProgressLog) -> tuple[bytes, dict[str, Any]]:
    """Quantizes with a calibration set. Returns the quantized file, and the report's fields."""
    progress.enter(Stage.CALIBRATE)
    requested = request.options
    preprocessing = requested.metadata.over(_preprocessing_of(model))
    data = Data(request.data, preprocessing, requested.samples)
    labels = _labels(data, request.labels)
    held_out = None if request.held_out is None else Data(request.held_out, preprocessing, MOST_SAMPLES)
    held_out_labels = [] if held_out is None else _labels(held_out, request.held_out_labels)
    _WORK.mkdir()
    session = CalibrationSession(_WORK, _ParentMachine(request.made, progress), tick=progress.tick)
    options = _options_of(requested)
    searched = is_searched(requested)
    calibration = Calibration(model, session, data, options, requested.raise_to if searched else None)
    costs: dict[str, Any] = {}
    if searched:
        progress.enter(Stage.RANK)
        options, costs = choose_mixture(calibration, session, options, requested, labels)
    progress.enter(Stage.MEASURE)
    quantized = calibration.quantize(options)
    if held_out is None:
        measured = calibration.measure(quantized, labels)
        return quantized.file, {**describe(requested, options, quantized, measured), **costs}
    measured = calibration.measure(quantized, held_out_labels, held_out)
    return quantized.file, {
        **describe(requested, options, quantized, measured),
        "inputs": data.length(),
        "held_out": {"data": held_out.path.name, "inputs": len(measured.answers)},
        **costs,
    }


def _labels(data: Data, file: Path | None) -> list[int | None]:
    """Returns the labels of the inputs in `file`, or else in the inputs' own archive. The list is empty if there are
    none.

    Raises:
        InvalidInput: the labels are malformed, or not those of these inputs.
    """
    labels = data.labels() if file is None else labels_of(file, data)
    if labels or file is not None:
        data.check_labels(labels, "labels.csv" if file is None else file.name)
    return labels


def _without_inputs(model: bytes, request: QuantizeRequest, progress: _ProgressLog) -> tuple[bytes, dict[str, Any]]:
    """Quantizes without a calibration set. Returns the quantized file, and the report's fields about its layers."""
    progress.enter(Stage.IMPORT)
    requested = request.options
    made = dynamic(model) if requested.weights is None else blocked(model, requested.weights, requested.block)
    return made.file, {"weights": requested.weights, "layers": list(made.layers)}


def _options_of(requested: QuantizationOptions) -> Options:
    return Options(
        requested.method.value,
        requested.activations.value,
        requested.keep,
        requested.wide,
        requested.bfloat16,
        fit=Fit(requested.correct_bias, requested.adaround),
        equalize=requested.equalize,
        rounds=requested.rounds,
        live=requested.live,
    )


def _preprocessing_of(model: bytes) -> ModelMetadata:
    """Returns how the model preprocesses pictures. Options take precedence."""
    try:
        return parse(read_model(model).metadata_text)
    except InvalidInput:  # importing the model will report the reason
        return NOTHING


@dataclass
class _ProgressLog:
    """Reports progress to the parent."""

    report: Report
    _stage: Stage = Stage.CALIBRATE

    def enter(self, stage: Stage) -> None:
        self._stage = stage
        self.report.stage(stage)

    def tick(self, what: str, number: int, total: int) -> None:
        self.report.stage(self._stage, min(1.0, number / total))
        self.report.log(f"{what}: {number} of {total}")


@dataclass
class _ParentMachine:
    """An `observing.Machine` for a sandboxed child. The parent builds models, and this process runs them."""

    made: Path
    progress: _ProgressLog
    _count: int = 0
    _numbers: dict[Path, int] = field(default_factory=dict)  # library of a build -> the build's number

    def build(self, source: Path, directory: Path) -> ArtifactFiles:
        self._count += 1
        source.rename(_ASKED_FILE)
        self.progress.report.log("builds a model to measure with")
        self.progress.report.make(_ASKED_FILE)
        answer = self.made / answer_file(self._count)
        while not answer.exists():  # if the build fails, the parent ends this process
            time.sleep(_POLL_S)
        built = ArtifactFiles.from_json(json.loads(answer.read_text()))
        self._numbers[built.library] = self._count
        return built

    def discard(self, built: ArtifactFiles) -> None:
        self.progress.report.discard(self._numbers.pop(built.library))

    def run(self, role: Role[Request, Result], request: Request, directory: Path, files: Iterable[Path]) -> None:
        before = {*Path().iterdir()}
        getattr(observing_roles, f"{role.name}_role")(request.to_json(), self.progress.report)
        for path in {
            *Path().iterdir()
        } - before:  # the role wrote to the working directory, which cannot be changed here
            path.rename(directory / path.name)
