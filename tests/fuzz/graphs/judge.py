"""Builds a graph with the whole pipeline and compares every value with the reference runtime of the numerics mode."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from service import runtime
from service.cache import OciLayout
from service.compiler.build.pipeline import CompileRequest, compile_model
from service.core.artifacts.artifact import Report
from service.core.artifacts.sequence import SequenceState
from service.core.digest import digest_of_file
from service.core.errors import OctetError
from service.core.models.arrays import Array
from service.core.models.signature import ModelSignature
from service.core.settings import Settings
from service.core.target import parse_target
from service.core.verification.agreement import Comparison, Deviation, Outcome, decide
from service.core.verification.comparison import compare_output
from service.core.verification.vectors import sample_inputs
from tests.fuzz.graphs.formats import Runtime, to_bytes
from tests.fuzz.graphs.graph import Graph
from tests.support.compiling import Quiet

Answers = Callable[[Sequence[Array]], list[Array]]

NUMERICS = {"onnx": ("onnxruntime",), "tflite": ("litert-reference", "xnnpack")}
# These errors refuse a valid model because it uses an unsupported feature. They are not findings.
REFUSALS = frozenset({"unsupported", "unsupported_operator"})
NO_FINDINGS = frozenset({"equal", "documented", "refused", "invalid"})

_INPUTS = 24
# Real outputs agree within this fraction of the largest value, because Octet adds float32 sums in another order than
# the reference.
_REAL_TOLERANCE = 1e-5


@dataclass(frozen=True)
class Verdict:
    """The result of judging a graph.

    Attributes:
        outcome: "equal"; "documented" (all differences are within the documented deviations of the mode); "refused";
            "invalid" (the reference runtime does not run the graph); or the name of a finding.
        text: the error message, or the number of values that differ.
        inputs: inputs that cause a difference.
    """

    outcome: str
    text: str = ""
    inputs: tuple[Array, ...] = ()

    @property
    def is_finding(self) -> bool:
        return self.outcome not in NO_FINDINGS


class Judge:
    """Builds graphs in a temporary store of its own, which it removes at the end.

    Args:
        numerics: the mode of the builds.
        on_reference: called with true before the reference runtime computes outputs, and with false afterwards.
            The runtime may end the process.
    """

    def __init__(self, numerics: str, on_reference: Callable[[bool], None] = lambda runs: None) -> None:
        self._numerics, self._on_reference = numerics, on_reference
        self._folder = Path(tempfile.mkdtemp(prefix="octet-graphs-"))
        self._settings = Settings(data_dir=self._folder / "data")
        self._layout = OciLayout(self._folder / "store")
        self._builds = 0

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def is_valid(self, graph: Graph) -> bool:
        """Returns true if the reference runtime loads the graph."""
        try:
            Runtime(graph.format, to_bytes(graph), self._numerics)
        except Exception:
            return False
        return True

    def __call__(self, graph: Graph) -> Verdict:
        data = to_bytes(graph)
        try:
            reference = Runtime(graph.format, data, self._numerics)
        except Exception as error:
            return Verdict("invalid", str(error))
        return self.of_file(data, reference)

    def of_file(
        self,
        data: bytes,
        reference: Answers,
        samples: Sequence[Sequence[Array]] = (),
        options: Mapping[str, Any] | None = None,
    ) -> Verdict:
        """Builds a model file and compares it with `reference`.

        Args:
            reference: a function that computes the outputs for given inputs.
            samples: the inputs; by default generated ones.
            options: the options of the build.
        """
        try:
            model, deviations = self._built(data, options)
        except OctetError as error:
            if error.code in REFUSALS:
                return Verdict("refused", f"{error.op or ''}: {error.message}")
            return Verdict(f"{error.code} {_class_of(error.message)}", f"{error.message} [{error.op} {error.tensor}]")
        samples = samples or _samples(model.signature)
        self._on_reference(True)
        try:
            expected = [reference(sample) for sample in samples]
        except Exception as error:
            return Verdict("invalid", f"the reference runtime fails: {error}")
        finally:
            self._on_reference(False)
        return _compared(model, samples, expected, deviations)

    def _built(self, data: bytes, options: Mapping[str, Any] | None) -> tuple[runtime.Model, list[Deviation]]:
        """Returns the built model, and the deviations that its report documents."""
        self._builds += 1
        scratch = self._folder / f"scratch{self._builds}"
        scratch.mkdir()
        source = scratch / "model"
        source.write_bytes(data)
        target = parse_target("host")
        request = CompileRequest(source, digest_of_file(source), target, self._numerics, options or {})
        try:
            artifact = compile_model(request, self._layout, scratch, Quiet(), self._settings)
            report = json.loads(self._layout.attached(artifact, Report.NUMERICS) or b"{}")
            deviations = [Deviation.from_json(each) for each in report.get("deviations", ())]
            return runtime.load(self._layout, artifact), deviations
        finally:
            shutil.rmtree(scratch)


def _class_of(message: str) -> str:
    """Returns the message without numbers and names, so that all occurrences of one bug have one name."""
    return re.sub(r"'[^']*'|\b\w*\d\w*\b|\[[^\]]*\]", "_", message)[:120]


def _compared(
    model: runtime.Model,
    samples: Sequence[Sequence[Array]],
    expected: Sequence[Sequence[Array]],
    deviations: Sequence[Deviation],
) -> Verdict:
    values = different = 0
    steps = relative = 0.0
    shown: tuple[Array, ...] = ()
    state = SequenceState(model.signature)
    pairs: list[list[tuple[Array, Array]]] = []  # for each sample: pairs of an actual and an expected output
    for sample, outputs in zip(samples, expected, strict=True):
        pairs.append(
            [(output.copy(), wanted) for output, wanted in zip(model.run(sample, state), outputs, strict=True)]
        )
        for output, wanted in pairs[-1]:
            if output.shape != wanted.shape or output.dtype != wanted.dtype:
                text = f"{output.dtype}{output.shape} instead of {wanted.dtype}{wanted.shape}"
                return Verdict("another type", text, tuple(sample))
            values += output.size
            differs = _differing(output, wanted)
            if differs.any():
                shown = shown or tuple(sample)
                different += int(differs.sum())
                distance = float(np.abs(output[differs].astype(np.float64) - wanted[differs].astype(np.float64)).max())
                steps = max(steps, distance if output.dtype.kind in "iu" else 0.0)
                relative = max(relative, distance if output.dtype.kind == "f" else 0.0)
    if not different:
        return Verdict("equal", f"{values} values")
    text = f"{different} of {values} values, by {steps:g} steps, {relative:g} in reals"
    comparison = Comparison(
        tuple(range(len(samples))), tuple(compare_output(each) for each in zip(*pairs, strict=True))
    )
    if deviations and decide(comparison, deviations) is Outcome.DOCUMENTED:
        return Verdict("documented", f"{text}; {'; '.join(each.text for each in deviations)}")
    return Verdict("different", text, shown)


def _differing(output: Array, wanted: Array) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    if output.dtype.kind != "f":
        return np.asarray(output != wanted)
    finite = np.abs(wanted[np.isfinite(wanted)])
    tolerance = _REAL_TOLERANCE * float(finite.max()) if finite.size else 0.0
    with np.errstate(invalid="ignore"):
        near = (output == wanted) | (np.abs(output - wanted) <= tolerance) | (np.isnan(output) & np.isnan(wanted))
    return np.asarray(~near)


def _samples(signature: ModelSignature) -> Sequence[Sequence[Array]]:
    """Returns the inputs that the product's verification uses, and as many further inputs."""
    return [*sample_inputs(signature, _INPUTS), *sample_inputs(signature, _INPUTS, seed=1)]
