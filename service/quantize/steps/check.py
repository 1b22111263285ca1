"""Runs the float and the quantized model on the inputs, and measures the difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.core.models.arrays import Array
from service.core.verification.scoring import accuracy, classes_of
from service.quantize.calibration.data import Data
from service.quantize.calibration.observing import CalibrationSession
from service.quantize.search.sensitivity import decibels, finite
from service.quantize.steps.observe import Observed
from service.quantize.steps.rewrite import Quantized


@dataclass(frozen=True)
class Measured:
    """The loss of a quantization, as measured.

    Attributes:
        outputs: the signal-to-noise ratio of each output, in dB. The signal is the float model's output, and the noise
            is the difference from it.
        tensors: the signal-to-noise ratio of each stored tensor. The noise includes the noise of everything before the
            tensor.
        float_answers, answers: the first output for each input, `[inputs, elements]`. These arrays exist as long as the
            scratch directory does.
        labels: the right class of each input, or None if it is unknown.
    """

    outputs: Mapping[str, float]
    tensors: Mapping[str, float]
    float_answers: Array
    answers: Array
    labels: tuple[int | None, ...]

    def to_json(self) -> dict[str, Any]:
        first, second = classes_of(list(self.float_answers)), classes_of(list(self.answers))
        same = accuracy(second, first)
        return {
            "inputs": len(first),
            "outputs_db": {name: finite(value) for name, value in self.outputs.items()},
            "tensors_db": {name: finite(value) for name, value in self.tensors.items()},
            **({"same_class": same} if self.answers.shape[-1] > 1 else {}),
            **(
                {"accuracy": {"float": accuracy(first, self.labels), "quantized": accuracy(second, self.labels)}}
                if any(label is not None for label in self.labels)
                else {}
            ),
        }


def check(
    quantized: Quantized, observed: Observed, session: CalibrationSession, data: Data, labels: Sequence[int | None] = ()
) -> Measured:
    """Builds the quantized model, and compares it with the float model."""
    built = session.build(quantized.with_tensors)
    sums, (real, stored) = session.compare(observed.program.in_float(observed.factors), built, data)
    session.discard(built)
    noise = {name: decibels(*row) for name, row in zip(observed.names, sums, strict=True)}
    outputs = observed.names[: quantized.outputs]
    tensors = {name: value for name, value in noise.items() if name not in outputs}
    return Measured({name: noise[name] for name in outputs}, tensors, real, stored, tuple(labels))
