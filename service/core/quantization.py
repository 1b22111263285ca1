"""What a quantization is asked for: an option of the build that does it, and so a part of its key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from service.core.digest import Digest, parse_digest
from service.core.errors import InvalidInput
from service.core.metadata import NOTHING, ModelMetadata

QUANTIZE = "quantize"  # the name of the option
MOST_SAMPLES = 100_000
MOST_ROUNDS = 8
WEIGHT_BITS, LEAST_BLOCK = (4, 8), 16
ARTIFACT_TYPE = "application/vnd.octet.quantization.v1"
REPORT_MEDIA_TYPE = "application/vnd.octet.quantization.report.v1+json"
DATA_MEDIA_TYPE = "application/vnd.octet.quantization.data.v1"
_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_OF_ALL_WAYS = ("data", "metadata", "dynamic", "weights", "block")


class Method(StrEnum):
    """The names of `quantize.methods.METHODS`, which a test compares."""

    MINMAX = "minmax"
    PERCENTILE = "percentile"
    KL = "kl"
    MSE = "mse"
    POWER_OF_TWO = "power-of-two"
    MOVING_AVERAGE = "moving-average"


class Storage(StrEnum):
    """Of activations."""

    UINT8 = "uint8"
    INT8 = "int8"


class Raised(StrEnum):
    """What a budget makes of layers that may not be in integers, and need not be in float."""

    WIDE = "16x8"
    BFLOAT16 = "bfloat16"


@dataclass(frozen=True)
class LatencyBudget:
    """The longest that a call may take: a time, or so many times that of the model with no layer raised.

    Attributes:
        unit: `x`, `us`, `ms` or `s`.
    """

    amount: float
    unit: str

    @staticmethod
    def parse(text: str) -> LatencyBudget:
        """`1.2x`, `5ms`, `800us`. Raises `InvalidInput`: it is neither."""
        found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)(x|us|ms|s)", text)
        if found is None or float(found[1]) == 0:
            raise InvalidInput(f"{text!r} is no bound of latency", hint="such as 5ms, or 1.2x the time in integers")
        return LatencyBudget(float(found[1]), found[2])

    def limit_s(self, base_s: float) -> float:
        """Of a model that takes `base_s` with no layer raised."""
        return self.amount * (base_s if self.unit == "x" else _UNITS_S[self.unit])

    def __str__(self) -> str:
        return f"{self.amount:g}{self.unit}"


@dataclass(frozen=True)
class QuantizationOptions:
    """How a float model is quantized.

    Attributes:
        method: how ranges are chosen.
        activations: how they are stored.
        keep: names of operators' outputs that stay in float.
        wide: names of operators' outputs that have 16 bits, with weights of 8.
        bfloat16: names of outputs of Conv, Gemm and MatMul whose operands are rounded to bfloat16.
        equalize: whether channels of neighbouring layers are scaled to equal ranges first.
        correct_bias: whether biases take back what rounding weights adds to the mean of each channel.
        adaround: whether weights are rounded so that results change least, not each to the nearest.
        rounds: how often ranges are chosen again, by what the quantized model makes of the inputs.
        sensitivity: whether the cost of each layer, and the curve, are measured too.
        budget: the largest share of answers that may be lost, for which further layers stay in float; None: any.
        raise_to: what the budget raises layers to where that is enough; else they stay in float.
        latency_budget: how long a call may take at most, within which layers stay in float; None: any time.
        samples: as many inputs are used.
        metadata: what pictures are made tensors by.
        data: the stored calibration set; None of a command, which reads its own, and where no inputs are taken.
        dynamic: whether only matrix products are quantized, whose operands' ranges are found when the model runs.
        weights: the bits of weights of matrix products, where these alone are quantized; else None.
        block: so many of such weights share a scale.
    """

    method: Method = Method.MINMAX
    activations: Storage = Storage.UINT8
    keep: tuple[str, ...] = ()
    wide: tuple[str, ...] = ()
    bfloat16: tuple[str, ...] = ()
    equalize: bool = False
    correct_bias: bool = True
    adaround: bool = False
    rounds: int = 0
    sensitivity: bool = False
    budget: float | None = None
    raise_to: Raised = Raised.WIDE
    latency_budget: LatencyBudget | None = None
    samples: int = 256
    metadata: ModelMetadata = NOTHING
    data: Digest | None = None
    dynamic: bool = False
    weights: int | None = None
    block: int = 32

    @property
    def takes_inputs(self) -> bool:
        """Whether it is calibrated. If not, all other members but `data` and `metadata` have their defaults."""
        return not self.dynamic and self.weights is None

    @property
    def suffix(self) -> str:
        """The end of the quantized file's name, by the bits of its weights: `.int8.onnx`."""
        return f".int{self.weights or 8}.onnx"

    def check(self, has_inputs: bool) -> None:
        """
        Args:
            has_inputs: whether there is a calibration set.

        Raises:
            InvalidInput: it is asked for in no way or in several, or other members are of another way.
        """
        if sum((has_inputs, self.dynamic, self.weights is not None)) != 1:
            raise InvalidInput(
                "a model is quantized in one of three ways", hint="give inputs, or dynamic, or the bits of weights"
            )
        if self.weights is not None:
            check_blocks(self.weights, self.block)
        if self.raise_to is Raised.BFLOAT16 and (self.budget is None or self.latency_budget is not None):
            raise InvalidInput(
                "layers are raised to bfloat16 within a budget of answers, and none of latency: calls are timed by a "
                "target without its instruction",
                hint="give budget alone; bfloat16 names single layers",
            )
        others = [] if has_inputs else [each.name for each in fields(self) if each.name not in _OF_ALL_WAYS]
        others += [] if self.weights is not None else ["block"]
        asked = [name for name in others if getattr(self, name) != getattr(QuantizationOptions, name)]
        if asked:
            raise InvalidInput(f"{', '.join(asked)}: of another way to quantize", hint="leave it out")

    def to_json(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "activations": self.activations,
            "keep": list(self.keep),
            "wide": list(self.wide),
            "bfloat16": list(self.bfloat16),
            "equalize": self.equalize,
            "correct_bias": self.correct_bias,
            "adaround": self.adaround,
            "rounds": self.rounds,
            "sensitivity": self.sensitivity,
            "budget": self.budget,
            "raise_to": self.raise_to,
            "latency_budget": None if self.latency_budget is None else str(self.latency_budget),
            "samples": self.samples,
            "metadata": self.metadata.to_json(),
            "data": self.data,
            "dynamic": self.dynamic,
            "weights": self.weights,
            "block": self.block,
        }

    @staticmethod
    def from_json(members: Mapping[str, Any]) -> QuantizationOptions:
        # Of a build that was asked for before they were there, when no bias was corrected.
        members = {**QuantizationOptions(correct_bias=False).to_json(), **members}
        return QuantizationOptions(
            method=Method(members["method"]),
            activations=Storage(members["activations"]),
            keep=tuple(members["keep"]),
            wide=tuple(members["wide"]),
            bfloat16=tuple(members["bfloat16"]),
            equalize=members["equalize"],
            correct_bias=members["correct_bias"],
            adaround=members["adaround"],
            rounds=members["rounds"],
            sensitivity=members["sensitivity"],
            budget=members["budget"],
            raise_to=Raised(members["raise_to"]),
            latency_budget=None if (bound := members["latency_budget"]) is None else LatencyBudget.parse(bound),
            samples=members["samples"],
            metadata=ModelMetadata.from_json(members["metadata"]),
            data=None if members["data"] is None else parse_digest(members["data"]),
            dynamic=members["dynamic"],
            weights=members["weights"],
            block=members["block"],
        )


def check_blocks(bits: int, block: int) -> None:
    """Raises `InvalidInput`: blocks of no power of two of at least 16, or other bits."""
    if bits not in WEIGHT_BITS or block < LEAST_BLOCK or block & (block - 1):
        raise InvalidInput(f"weights of {bits} bits in blocks of {block}", hint="4 or 8 bits, and 16, 32, 64 …")


def quantization_of(options: Mapping[str, Any]) -> QuantizationOptions | None:
    """What a build quantizes by; None of one that compiles."""
    asked = options.get(QUANTIZE)
    return None if asked is None else QuantizationOptions.from_json(asked)


def is_quantization(options: Mapping[str, Any]) -> bool:
    """Whether a build with these options quantizes, and does not compile."""
    return QUANTIZE in options


def parse_share(text: str) -> float:
    """`0.5%` or `0.005`.

    Raises:
        InvalidInput: it is no share.
    """
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError as error:
        raise InvalidInput(f"{text!r} is no share", hint="such as 0.5%") from error
    if not 0 <= share < 1:
        raise InvalidInput(f"{text!r} is no share of all answers", hint="such as 0.5%")
    return share
