"""The roles of the sandboxed child process that quantizes. `quantize.sandboxed` is its parent."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from service.compiler.children import observing_roles
from service.compiler.children.handler import handles
from service.compiler.importers.onnx.file.metadata import parse
from service.compiler.importers.onnx.file.package import size_bytes
from service.compiler.importers.onnx.file.reader import read_model
from service.compiler.messages.checking import ArtifactFiles
from service.compiler.messages.role import Empty, Request, Result, Role
from service.compiler.sandbox import Report
from service.core.builds.build import Stage
from service.core.builds.quantization import QuantizationOptions, Raised
from service.core.errors import InvalidInput
from service.core.models.metadata import NOTHING, ModelMetadata
from service.quantize import budgeting
from service.quantize.calibration.data import Data, labels_of
from service.quantize.calibration.observing import CalibrationSession
from service.quantize.export.model import as_onnx
from service.quantize.messages import QUANTIZE, QUANTIZED_FILE, REPORT_FILE, QuantizeRequest, answer_file
from service.quantize.quantization import Calibration, Options
from service.quantize.rewrites.uncalibrated import blocked, dynamic
from service.quantize.search.sensitivity import Point
from service.quantize.search.timing import Stopwatch, within
from service.quantize.weights.fitting import Fit

_WORK, _ASKED_FILE = Path(".work"), ".model.onnx"
_POLL_S = 0.02


@handles(QUANTIZE)
def quantize_role(request: QuantizeRequest, report: Report) -> Empty:
    """Quantizes a float model, with a calibration set if the options need one. Writes the quantized file and the report
    to the working directory.
    """
    requested = request.options
    progress = _ProgressLog(report)
    source = request.model.read_bytes()
    model = as_onnx(source, request.shapes, lambda op, tensor: report.at(stage=Stage.IMPORT, op=op, tensor=tensor))
    if not requested.takes_inputs:
        progress.enter(Stage.IMPORT)
        _write(source, model, *_without_inputs(model, requested))
        return Empty()
    progress.enter(Stage.CALIBRATE)
    data = Data(request.data, requested.metadata.over(_preprocessing_of(model)), requested.samples)
    labels = data.labels() if request.labels is None else labels_of(request.labels, data)
    _WORK.mkdir()
    session = CalibrationSession(_WORK, _ParentMachine(request.made, progress, data), tick=progress.tick)
    fit = Fit(requested.correct_bias, requested.adaround)
    options = Options(
        requested.method.value,
        requested.activations.value,
        requested.keep,
        requested.wide,
        requested.bfloat16,
        fit=fit,
        equalize=requested.equalize,
        rounds=requested.rounds,
    )
    calibration = Calibration(model, session, data, options)
    costs: dict[str, Any] = {}
    if requested.sensitivity or requested.budget is not None or requested.latency_budget is not None:
        progress.enter(Stage.RANK)
        options, costs = _choose_mixture(calibration, session, options, requested, labels)
    progress.enter(Stage.MEASURE)
    quantized = calibration.quantize(options)
    measured = calibration.measure(quantized, labels).to_json()
    document = {
        "method": requested.method,
        "activations": requested.activations,
        "kept": list(options.kept),
        "wide": list(options.wide),
        "bfloat16": list(options.bfloat16),
        "quantized": len(quantized.plan.layers),
        "float": [{"op_type": kind, "reason": why, "operators": number} for kind, why, number in quantized.real],
        **measured,
        **costs,
    }
    _write(source, model, quantized.file, document)
    return Empty()


def _preprocessing_of(model: bytes) -> ModelMetadata:
    """Returns how the model preprocesses pictures. Options take precedence."""
    try:
        return parse(read_model(model).metadata_text)
    except InvalidInput:  # importing the model will report the reason
        return NOTHING


def _choose_mixture(
    calibration: Calibration,
    session: CalibrationSession,
    options: Options,
    requested: QuantizationOptions,
    labels: Sequence[int | None],
) -> tuple[Options, dict[str, Any]]:
    """Chooses the layers to raise to a more precise type. Returns `options` with these layers, and the report's fields
    about mixtures.
    """
    ranked = calibration.sensitivity(options)
    enough: Point | None = None
    curve = ranked.curve(labels, requested.raise_to)
    if requested.budget is not None:
        if requested.raise_to is Raised.BFLOAT16:
            mixture = budgeting.in_bfloat16(calibration, ranked, options, labels)
        else:
            mixture = partial(ranked.mixture, labels=labels)
        enough, curve = budgeting.within(requested.budget, curve, mixture)

    def raised(point: Point) -> Options:
        return options.raising(point.kept, point.wide, point.bfloat16)

    costs = {}
    if requested.latency_budget is not None:
        watch = Stopwatch(session, lambda point: calibration.quantize(raised(point)).file, curve[0])
        found = within(ranked, watch, curve, requested.latency_budget, requested.budget, labels)
        enough, curve, costs = found.point, found.tried, {"latency_budget": found.to_json(requested.latency_budget)}
    return options if enough is None else raised(enough), {"sensitivity": {**ranked.to_json(curve), **costs}}


def _without_inputs(model: bytes, requested: QuantizationOptions) -> tuple[bytes, dict[str, Any]]:
    """Quantizes without a calibration set. Returns the quantized file, and the report's fields about its layers."""
    made = dynamic(model) if requested.weights is None else blocked(model, requested.weights, requested.block)
    return made.file, {"weights": requested.weights, "layers": list(made.layers)}


def _write(source: bytes, model: bytes, quantized: bytes, document: Mapping[str, Any]) -> None:
    """Writes the quantized file and the report.

    Args:
        model: the float model as ONNX. The report compares its size with that of `quantized`, because the source's own
            format, or an archive, would store the same weights differently.
    """
    Path(QUANTIZED_FILE).write_bytes(quantized)
    sizes = {"source": len(source), "float": size_bytes(model), "quantized": len(quantized)}
    Path(REPORT_FILE).write_text(json.dumps({"bytes": sizes, **document}, allow_nan=False))


@dataclass
class _ProgressLog:
    """Reports progress to the parent.

    Attributes:
        inputs: the number of inputs that each pass runs; 0 before the first pass.
    """

    report: Report
    inputs: int = 0
    _stage: Stage = Stage.CALIBRATE

    def enter(self, stage: Stage) -> None:
        self._stage = stage
        self.report.stage(stage)

    def tick(self, what: str, number: int, total: int) -> None:
        most = total or self.inputs
        self.report.stage(self._stage, min(1.0, number / most) if most else 0.0)
        self.report.log(f"{what}: {number} of {total}" if total else f"{what}: {number} inputs")


@dataclass
class _ParentMachine:
    """An `observing.Machine` for a sandboxed child. The parent builds models, and this process runs them."""

    made: Path
    progress: _ProgressLog
    data: Data
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
        self.progress.inputs = self.progress.inputs or self.data.count(built.signature)
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
